// Slides of samples or times. Without this script the static pictures stand alone; on paper they
// stand in its place.
function add(parent, name, attributes = {}, text = "") {
  const one = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  one.textContent = text;
  return parent.appendChild(one);
}

// Pictures of which one is seen: samples by the rank of their error, or times, which play.
function slides(place) {
  const images = [...place.querySelectorAll("img")];
  const { word, start, moving } = place.dataset;
  const row = add(place, "p", { class: "controls" });
  const play = moving ? add(row, "button", { type: "button" }, "Play") : null;
  const name = add(row, "label", {}, `${word} `);
  const range = add(name, "input", { type: "range", min: 1, max: images.length, value: start });
  const said = add(row, "output");
  const show = () => {
    images.forEach((image, k) => { image.hidden = k !== range.value - 1; });
    const image = images[range.value - 1];
    said.textContent = `${word} ${range.value} of ${images.length}: ${image.dataset.label}`;
    range.setAttribute("aria-valuetext", said.textContent);
  };
  let timer = null;
  const pause = () => {
    clearInterval(timer);
    timer = null;
    if (play) play.textContent = "Play";
  };
  range.addEventListener("input", () => { pause(); show(); });
  if (play) {
    play.addEventListener("click", () => { // nothing moves unless it is asked to
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

for (const place of document.querySelectorAll(".live")) {
  place.hidden = false;
  slides(place);
}
