// What the theme leaves without a name, or with a wrong role, for those who hear the page.
document.addEventListener("DOMContentLoaded", () => {
  for (const toggle of document.querySelectorAll("summary:has(> .toctree-toggle)")) {
    toggle.setAttribute("aria-label", "Pages of this section");
  }
  for (const button of document.querySelectorAll(".search-button-field")) {
    button.setAttribute("aria-label", button.innerText.trim() || "Search"); // as it shows itself
  }
  for (const list of document.querySelectorAll(".sig dl")) {
    list.setAttribute("role", "list"); // arguments of a signature, one a line
    for (const item of list.children) item.setAttribute("role", "listitem");
  }
});
