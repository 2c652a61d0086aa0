// Small parts of the page.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isExpiring, type Entry } from "./store";

/** A text that a user has chosen: its direction does not change that of what is around it. */
export function Data({ children, title }: { children: ComponentChildren; title?: string }) {
  return <bdi class="data" title={title}>{children}</bdi>;
}

const units: [string, number][] = [["d", 86_400], ["h", 3600], ["m", 60], ["s", 1]];

/** A duration in its two largest units; less than ten seconds with a tenth. */
export function duration(ms: number, isExact = true): string {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10 && isExact) return (Math.floor(seconds * 10) / 10).toFixed(1) + "s";
  const index = Math.max(0, units.findIndex(([, size]) => seconds >= size));
  const [unit, size] = seconds < 1 ? units[3]! : units[index]!;
  const next = units[index + 1];
  const rest = next ? Math.floor((seconds % size) / next[1]) : 0;
  return Math.floor(seconds / size) + unit + (rest && next && seconds >= 1 ? " " + rest + next[0] : "");
}

const clockFormat = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});
/** A time in the time zone of the browser, which it names. */
export function clockTime(at: number): string { return clockFormat.format(at); }

const serviceAccount = /^system:serviceaccount:([^:]+):(.+)$/;

/** The short name of an identity. */
export function shortName(user: string): string { return serviceAccount.exec(user)?.[2] ?? user; }

/** An identity, a service account by its name with the namespace behind it. */
export function Who({ user }: { user: string }) {
  const account = serviceAccount.exec(user);
  if (!account) return <Data title={user}>{user}</Data>;
  return <span title={user}><Data>{account[2]}</Data> <span class="quiet">in <Data>{account[1]}</Data></span></span>;
}

/** A colour for an identity that stays the same. */
export function hueOf(text: string): number {
  let hash = 7;
  for (let i = 0; i < text.length; i++) hash = (hash * 31 + text.charCodeAt(i)) >>> 0;
  return (hash % 12) + 1;
}

const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** A bar that runs down to the expiry by itself, and refills when the lock is renewed. The text beside it says the same. */
export function Bar({ entry, now }: { entry: Entry; now: number }) {
  const bar = useRef<HTMLSpanElement>(null);
  const total = Math.max(1, entry.expires - entry.renewed);
  const left = entry.ended ? 0 : Math.min(1, Math.max(0, (entry.expires - now) / total));
  useLayoutEffect(() => {
    const element = bar.current!;
    const remaining = entry.expires - now;
    if (entry.ended || remaining <= 0 || calm.matches) return;
    const before = new DOMMatrix(getComputedStyle(element).transform).a;
    const refill = Math.min(250, remaining / 4);
    const running = element.animate([
      { transform: `scaleX(${element.dataset["id"] === entry.id ? before : left})`, easing: "ease-out" },
      { transform: `scaleX(${Math.max(0, (remaining - refill) / total)})`, offset: refill / remaining, easing: "linear" },
      { transform: "scaleX(0)" },
    ], { duration: remaining, fill: "forwards" });
    element.dataset["id"] = entry.id;
    return () => running.cancel();
  }, [entry.id, entry.renewed, entry.expires, !!entry.ended]);
  useEffect(() => { if (calm.matches || entry.ended) bar.current!.style.transform = `scaleX(${left})`; });
  return <span class={"bar" + (isExpiring(entry, now) ? " soon" : "")} aria-hidden="true"><span ref={bar} /></span>;
}

/** Waiters as a line of dots, the first of whom gets the lock next. */
export function Dots({ count, most = 7 }: { count?: number; most?: number }) {
  if (count === undefined) return <span class="quiet none" aria-label="not known who waits">?</span>;
  if (!count) return <span class="quiet none" aria-label="no one waits">–</span>;
  const shown = Math.min(count, most);
  return <span class="dots" role="img" aria-label={count === 1 ? "1 waits" : `${count} wait`}>
    {Array.from({ length: shown }, (_, place) => <i key={place} class={place ? "" : "next"}>{place + 1}</i>)}
    {count > shown && <b>+{count - shown}</b>}
  </span>;
}

export function Copy({ text }: { text: string }) {
  const [told, tell] = useState("");
  useEffect(() => {
    if (!told) return;
    const timer = setTimeout(() => tell(""), 1600);
    return () => clearTimeout(timer);
  }, [told]);
  const code = useRef<HTMLElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      tell("Copied");
    } catch { // Without TLS a browser has no such clipboard: the text is selected, which can be copied in an older way or by the user.
      getSelection()?.selectAllChildren(code.current!);
      tell(document.execCommand("copy") ? "Copied" : "Selected");
    }
  };
  return <div class="command">
    <code ref={code} tabIndex={0} role="group" aria-label="Command">{text}</code>
    <button type="button" onClick={copy} aria-label={"Copy " + text}>{told || "Copy"}</button>
    <span class="sr" role="status">{told}</span>
  </div>;
}

/** A command about a lock. A key that begins with a dash must not be taken as a flag. */
export function lockCommand(verb: string, of: { namespace: string; key: string }, flags = ""): string {
  const rest = ` -n ${quoted(of.namespace)}${flags && " " + flags}`;
  return "kubectl lock " + verb + (of.key.startsWith("-") ? `${rest} -- ${quoted(of.key)}` : ` ${quoted(of.key)}${rest}`);
}

/** A word in quotes as a shell takes it. */
export function quoted(word: string): string { return /^[\w.:/@-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'"; }

/** The changes of the last minute. */
export function Spark({ rates }: { rates: number[] }) {
  const most = Math.max(4, ...rates);
  const points = rates.map((rate, index) => `${index * 2},${(24 - rate / most * 22).toFixed(1)}`).join(" ");
  return <svg class="spark" viewBox="0 0 118 25" preserveAspectRatio="none" aria-hidden="true">
    <polygon points={`0,25 ${points} 118,25`} /><polyline points={points} />
  </svg>;
}
