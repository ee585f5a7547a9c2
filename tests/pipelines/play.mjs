// Plays with a report as a reader does: node play.mjs PAGE MODULES [PICTURES]
//
// What was seen is printed as JSON: samples, times, errors of scripts, requests, serious faults that
// axe finds; and the page without scripts, and printed.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [file, modules, pictures] = process.argv.slice(2);
const require = createRequire(join(resolve(modules), "node_modules", "x"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const found = { errors: [], requests: [], axe: [], wide: [] };
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
});

async function open(options) {
  const page = await (await browser.newContext(options)).newPage();
  page.on("console", (one) => { if (one.type() !== "log") found.errors.push(one.text()); });
  page.on("pageerror", (error) => found.errors.push(error.message));
  page.on("request", (one) => {
    if (!/^(file|data|blob):/.test(one.url())) found.requests.push(one.url());
  });
  await page.goto(pathToFileURL(resolve(file)).href);
  return page;
}
const seen = (page, what) => page.locator(what).evaluateAll(
  (all) => all.filter((one) => one.checkVisibility()).length,
);

for (const [name, width] of [["desktop", 1200], ["phone", 390]]) {
  const page = await open({ viewport: { width, height: 900 } });
  await page.waitForSelector(".live");
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run());
  for (const { id, impact, nodes } of violations) {
    if (["serious", "critical"].includes(impact)) {
      found.axe.push(`${name}: ${id}: ${nodes.length} x ${nodes[0].html.slice(0, 160)}`);
    }
  }
  found.wide.push(await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  ));
  if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
  await page.close();
}

const page = await open({ viewport: { width: 1200, height: 900 }, reducedMotion: "reduce" });
const shown = async (block) => ({
  said: await block.locator("output").textContent(),
  value: await block.locator("input").inputValue(),
  image: await block.locator("img:visible").getAttribute("alt"),
  images: await block.locator("img:visible").count(),
});
const samples = page.locator('.live[data-word="sample"]').first();
found.slides = [await shown(samples)];
await samples.locator("input").focus();
await page.keyboard.press("Tab");
await page.keyboard.press("Shift+Tab");
found.outline = await samples.locator("input").evaluate((one) => getComputedStyle(one).outlineStyle);
for (const key of ["ArrowRight", "Home", "End"]) {
  await page.keyboard.press(key);
  found.slides.push(await shown(samples));
}

const times = page.locator('.live[data-word="time"]').first();
if (await times.count()) {
  const button = times.getByRole("button");
  const state = async () => ({ ...(await shown(times)), button: await button.textContent() });
  const wait = () => page.waitForTimeout(500);
  await wait();
  found.times = [await state()];
  await button.click();
  const input = await times.locator("input").elementHandle();
  await page.waitForFunction((one) => one.value === "2", input); // else it does not play
  found.times.push(await state());
  await button.click();
  found.times.push(await state());
  await wait();
  found.times.push(await state());
  await button.click();
  await times.locator("input").focus();
  await page.keyboard.press("Home");
  await wait();
  found.times.push(await state());
}
await page.emulateMedia({ media: "print" });
found.printed = { live: await seen(page, ".live"), pictures: await seen(page, "figure > svg") };
await page.close();

const bare = await open({ javaScriptEnabled: false });
const count = { live: ".live", pictures: "figure > svg" };
found.bare = {};
for (const [key, what] of Object.entries(count)) {
  found.bare[key] = 0;
  for (const one of await bare.locator(what).all()) found.bare[key] += await one.isVisible() ? 1 : 0;
}
found.figures = await bare.locator("figure").count();
await browser.close();
console.log(JSON.stringify(found));
