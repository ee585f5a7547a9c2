// Looks at pages as people do: node look.mjs SITE MODULES [PICTURES] < pages
//
// Every page is opened at the width of a desktop and of a phone, light and dark. Printed as JSON, one
// entry for each finding: serious faults that axe finds, requests to elsewhere, errors of scripts,
// and pages that are wider than the screen.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [site, modules, pictures] = process.argv.slice(2);
const require = createRequire(join(resolve(modules), "node_modules", "x"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const pages = readFileSync(0, "utf8").split("\n").filter(Boolean);
const sizes = { desktop: [1280, 900], phone: [390, 844] };
const found = [];

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
});
for (const [name, [width, height]] of Object.entries(sizes)) {
  for (const colorScheme of ["light", "dark"]) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme });
    const page = await context.newPage();
    let where = "";
    const say = (what) => found.push({ page: where, size: name, colours: colorScheme, what });
    page.on("request", (one) => {
      if (!/^(file|data|blob):/.test(one.url())) say(`asks for ${one.url()}`);
    });
    page.on("pageerror", (error) => say(`script: ${error.message}`));
    for (where of pages) {
      await page.goto(pathToFileURL(resolve(site, where)).href);
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => axe.run());
      for (const { id, impact, nodes } of violations) {
        if (["serious", "critical"].includes(impact)) {
          say(`${id} (${impact}): ${nodes.length} x ${nodes[0].html.slice(0, 160)}`);
        }
      }
      const over = await page.evaluate(
        () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
      );
      if (over > 0) say(`is ${over} pixels wider than the screen`);
      if (pictures) {
        const file = `${where.replaceAll("/", "-")}-${name}-${colorScheme}.png`;
        await page.screenshot({ path: join(pictures, file) });
      }
    }
    await context.close();
  }
}
await browser.close();
console.log(JSON.stringify(found, null, 1));
