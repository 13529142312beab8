// Shows beside every page that is found where the words stand in it. The texts come with the site (excerpts.js).
(() => {
  const BEFORE = 90, AFTER = 170;
  const words = (new URLSearchParams(location.search).get("q") || "").toLowerCase().split(/\s+/).filter(Boolean);

  const excerpt = (text) => {
    const lower = text.toLowerCase();
    const stems = words.map((word) => word.slice(0, Math.max(4, word.length - 3)));  // pages are found by stems
    const places = [words.join(" "), ...words, ...stems].map((word) => lower.indexOf(word)).filter((place) => place >= 0);
    if (!places.length) return null;
    const first = Math.max(0, places[0] - BEFORE), last = Math.min(text.length, places[0] + AFTER);
    const start = first ? text.indexOf(" ", first) + 1 : 0;  // whole words only
    const end = last < text.length ? Math.max(text.lastIndexOf(" ", last), places[0] + 1) : last;
    const shown = document.createElement("p");
    shown.className = "excerpt";
    shown.append(start > 0 ? "… " : "");
    const pattern = new RegExp(`(${words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "i");
    text.slice(start, end).split(pattern).forEach((piece, place) => {
      if (place % 2 === 0) return shown.append(piece);
      const mark = document.createElement("mark");
      mark.textContent = piece;
      shown.append(mark);
    });
    shown.append(end < text.length ? " …" : "");
    return shown;
  };

  const fill = (item) => {
    const link = item.querySelector("a");
    if (!link || item.querySelector(".excerpt")) return;
    const page = link.getAttribute("href").replace(/^\.\//, "").split(/[?#]/)[0].replace(/\.html$/, "");
    const found = EXCERPTS[page] && excerpt(EXCERPTS[page]);
    if (found) item.append(found);
  };

  document.addEventListener("DOMContentLoaded", () => {
    const results = document.getElementById("search-results");
    if (!results || !words.length) return;
    const look = () => results.querySelectorAll("li").forEach(fill);
    new MutationObserver(look).observe(results, { childList: true, subtree: true });
    look();
  });
})();
