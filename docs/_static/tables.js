// Tables of two or three columns whose first one holds code only are lists of names: on a phone each row becomes a column.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table")) {
    const rows = [...table.querySelectorAll("tbody tr")];
    if (rows.every((row) => row.children.length < 4 && row.children[0].querySelector("code"))) table.classList.add("names");
    // Tables of seven columns or more have no room on a phone: each row becomes a card, its filled cells with their names.
    const names = [...table.querySelectorAll("thead th")].map((head) => head.textContent);
    if (names.length < 7) continue;
    table.classList.add("cards");
    for (const row of rows) {
      [...row.children].forEach((cell, place) => cell.textContent.trim() && (cell.dataset.column = names[place]));
    }
  }
});

// A field above the tables of rules and of known bugs: only rows that hold all of its words are shown.
document.addEventListener("DOMContentLoaded", () => {
  const section = document.querySelector("#rules, #known-bugs-by-release");
  const first = section && section.querySelector(".table-wrapper, table");
  if (!first) return;
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Filter: linear, layer norm, warning …";
  field.setAttribute("aria-label", "Filter the table");
  field.className = "filter";
  const before = first.closest("section") === section ? first : first.closest("section");
  before.before(field);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of section.querySelectorAll("tbody tr")) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    for (const part of section.querySelectorAll("section")) {
      if (part.querySelector("tbody")) part.hidden = !part.querySelector("tbody tr:not([hidden])");
    }
  });
});
