// Slides of samples or times. Static pictures replace them without this script and on paper.
function add(parent, name, attributes = {}, text = "") {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return parent.appendChild(element);
}

// Shows one image at a time: samples by the rank of their error, or times as an animation.
function slides(box) {
  const images = [...box.querySelectorAll("img")];
  const { word, start, moving } = box.dataset;
  const row = add(box, "p", { class: "controls" });
  const play = moving ? add(row, "button", { type: "button" }, "Play") : null;
  const name = add(row, "label", {}, `${word} `);
  const range = add(name, "input", { type: "range", min: 1, max: images.length, value: start });
  const output = add(row, "output");
  const show = () => {
    images.forEach((image, k) => { image.hidden = k !== range.value - 1; });
    const image = images[range.value - 1];
    output.textContent = `${word} ${range.value} of ${images.length}: ${image.dataset.label}`;
    range.setAttribute("aria-valuetext", output.textContent);
  };
  let timer = null;
  const pause = () => {
    clearInterval(timer);
    timer = null;
    if (play) play.textContent = "Play";
  };
  range.addEventListener("input", () => { pause(); show(); });
  if (play) {
    play.addEventListener("click", () => { // animations start only on request
      if (timer) { pause(); return; }
      play.textContent = "Pause";
      timer = setInterval(() => {
        range.value = (Number(range.value) % images.length) + 1;
        show();
      }, Number(moving));
    });
  }
  show();
}

for (const box of document.querySelectorAll(".live")) {
  box.hidden = false;
  slides(box);
}
