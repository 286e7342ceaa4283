// Matches over time: a bar for each stretch of {at, count}.
import { h, numberText, svg, timeText } from "./dom.js";

const WIDTH = 720, HEIGHT = 180, LEFT = 44, BOTTOM = 22, TOP = 8;

export function chart(stretches) {
  const most = Math.max(1, ...stretches.map((one) => one.count));
  const top = rounded(most), wide = (WIDTH - LEFT) / Math.max(1, stretches.length);
  const y = (count) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - count / top);
  const lines = [0, top / 2, top].filter(Number.isInteger).map((count) => svg("g", {},
    svg("line", { x1: LEFT, x2: WIDTH, y1: y(count), y2: y(count) }),
    svg("text", { x: LEFT - 6, y: y(count) + 4, "text-anchor": "end" }, numberText(count))));
  const bars = stretches.map((one, place) => svg("g", {},
    svg("title", {}, `${timeText(one.at)}: ${one.count}`),
    svg("rect", { class: "back", x: LEFT + place * wide, y: TOP, width: wide, height: HEIGHT - TOP - BOTTOM }),
    svg("rect", { class: "bar", x: LEFT + place * wide + 1, y: y(one.count), width: Math.max(1, wide - 2), height: y(0) - y(one.count) })));
  const times = [0, Math.floor(stretches.length / 2), stretches.length - 1].filter((n, i, all) => n >= 0 && all.indexOf(n) === i)
    .map((place, i) => svg("text", { x: LEFT + place * wide + (i === 2 ? wide : 0), y: HEIGHT - 6, "text-anchor": ["start", "middle", "end"][i] }, timeText(stretches[place].at)));
  const total = stretches.reduce((sum, one) => sum + one.count, 0);
  return h("figure", {}, svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${total} matches over time` }, lines, bars, times));
}

function rounded(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 10].map((step) => step * power).find((step) => step >= value) ?? value;
}
