"use strict";
// Helpers that all parts of the page share, and its state: which step, which window in time and ranks, which rank.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

const HUES = 6; // of modules: each has its own for forward, backward and weights
const state = { step: 0, t0: 0, t1: 1, r0: 0, r1: 1, rank: 0, event: -1, tick: 0, colour: "pass", path: false };
const painters = []; // functions that draw from the state
let asked = false;

function repaint() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    painters.forEach((paint) => paint());
  });
}

function change(what) {
  Object.assign(state, what);
  repaint();
}

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function duration(seconds, digits = 2) {
  const size = Math.abs(seconds);
  if (size >= 1) return `${seconds.toFixed(digits)} s`;
  if (size >= 1e-3) return `${(seconds * 1e3).toFixed(digits)} ms`;
  return `${(seconds * 1e6).toFixed(size ? 1 : 0)} µs`;
}

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

// ------------------------------------------------------------------------------------------------- colours, canvas

let tokens = {}; // of the theme: name → colour

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const names = "page sheet ink soft line faint idle cap mark u c o".split(" ");
  for (let i = 0; i < HUES; i++) names.push(`f${i}`, `b${i}`, `w${i}`);
  for (let i = 0; i < 8; i++) names.push(`d${i}`, `p${i}`);
  for (let i = 0; i < 4; i++) names.push(`s${i}`);
  tokens = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function rgb(hex) {
  const value = parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** Black or white, whichever reads better on a colour. */
function inkOn(hex) {
  const [r, g, b] = rgb(hex).map((c) => ((c / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.2 ? "#0b1420" : "#ffffff";
}

/** A canvas at the screen's own resolution: its context in CSS pixels, and its size. */
function fitted(canvas) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const box = canvas.getBoundingClientRect();
  const [width, height] = [Math.max(1, Math.round(box.width * ratio)), Math.max(1, Math.round(box.height * ratio))];
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width: box.width, height: box.height, ratio };
}

const FONT = 'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';

/** Round numbers, about `count` of them between low and high. */
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-12); at++) found.push(at * step);
  return found;
}
