// What a search has found, with the words around it. The theme would fetch each page for that, which a browser forbids
// for files; so the text of all pages lies beside (`EXCERPTS`, written by docs/conf.py when the site is built).
"use strict";

const AROUND = 110; // characters on either side

/** The text around the first of the words, in parts: [text, is it the word]; null if none of them is there. */
function excerptOf(text, words) {
  const low = text.toLowerCase();
  const places = words.map((word) => [low.indexOf(word), word.length]).filter(([at]) => at >= 0);
  if (!places.length) return null;
  const [at, length] = places.reduce((first, one) => (one[0] < first[0] ? one : first));
  let from = Math.max(0, at - AROUND), to = Math.min(text.length, at + length + AROUND);
  while (from > 0 && from < at && text[from - 1] !== " ") from++;
  while (to < text.length && to > at + length && text[to] !== " ") to--;
  return [[(from ? "… " : "") + text.slice(from, at), false], [text.slice(at, at + length), true], [text.slice(at + length, to) + (to < text.length ? " …" : ""), false]];
}

/** Put the excerpt below a result. */
function explain(item, words, root) {
  const link = item.querySelector("a");
  if (!link || item.querySelector(".excerpt")) return;
  const page = decodeURI(new URL(link.href).pathname).slice(root.length).replace(/\.html$/, "");
  const parts = excerptOf(window.EXCERPTS?.[page] || "", words);
  if (!parts) return;
  const line = document.createElement("p");
  line.className = "excerpt";
  for (const [text, found] of parts) {
    const part = document.createElement(found ? "strong" : "span");
    part.textContent = text;
    line.append(part);
  }
  item.append(line);
}

const results = document.getElementById("search-results");
if (results) {
  const query = new URLSearchParams(window.location.search).get("q") || "";
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const root = decodeURI(new URL(document.documentElement.dataset.content_root || "./", window.location.href).pathname);
  const all = () => results.querySelectorAll("ul.search > li").forEach((item) => explain(item, words, root));
  new MutationObserver(all).observe(results, { childList: true, subtree: true });
  all();
}
