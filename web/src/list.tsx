// The list of locks, of which only those on the screen are elements.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Bar, Data, Dots, duration, hueOf, Who } from "./bits";
import { go, hashOf, type Route } from "./route";
import { idOf, isExpiring, type Entry } from "./store";

const narrow = matchMedia("(max-width: 760px)");
/** The height of a row, as in style.css. */
const rowHeight = () => narrow.matches ? 96 : 56;
const beyond = 4;

export function List({ entries, route, now, hasNamespaces }: { entries: Entry[]; route: Route; now: number; hasNamespaces: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [row, setRow] = useState(rowHeight);
  const [active, setActive] = useState("");
  const focusNext = useRef(false);
  useEffect(() => {
    const observer = new ResizeObserver(() => {
      setHeight(box.current!.clientHeight);
      setRow(rowHeight());
    });
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(top / row) - beyond);
  const shown = entries.slice(first, Math.ceil((top + height) / row) + beyond);
  useLayoutEffect(() => {
    if (!focusNext.current) return;
    const link = box.current!.querySelector<HTMLElement>("a[data-active]");
    if (link) {
      focusNext.current = false;
      link.focus({ preventScroll: true });
    }
  });
  const move = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: Math.floor(height / row), PageUp: -Math.floor(height / row), Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || !entries.length || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const at = entries.findIndex(each => each.id === active);
    const next = Math.min(entries.length - 1, Math.max(0, at < 0 ? first : at + step));
    setActive(entries[next]!.id);
    focusNext.current = true;
    const place = next * row, view = box.current!;
    if (place < view.scrollTop) view.scrollTop = place;
    else if (place + row > view.scrollTop + height) view.scrollTop = place + row - height;
  };
  const chosen = route.lock && idOf(route.lock);
  const tabbed = shown.some(each => each.id === active) ? active : shown[0]?.id;
  return <div class={"list" + (entries.length * row > height ? " long" : "")} role="table" aria-label="Locks" aria-rowcount={entries.length + 1} onKeyDown={move}>
    <div role="rowgroup" class="head">
      <div role="row" aria-rowindex={1} class="row">
        <span role="columnheader">Lock</span><span role="columnheader">Holder</span><span role="columnheader">Expires in</span>
        <span role="columnheader">Line</span><span role="columnheader">Held for</span>
      </div>
    </div>
    <div role="rowgroup" class="scroll" ref={box} onScroll={event => setTop(event.currentTarget.scrollTop)}>
      <div class="space" role="presentation" ref={element => { if (element) element.style.height = entries.length * row + "px"; }}>
        {shown.map((entry, index) =>
          <Row key={entry.id} entry={entry} index={first + index} at={(first + index) * row} now={now} isChosen={entry.id === chosen}
            isTabbed={entry.id === tabbed} isActive={entry.id === active} route={route} hasNamespaces={hasNamespaces} onFocus={() => setActive(entry.id)} />)}
      </div>
    </div>
  </div>;
}

function Row({ entry, index, at, now, isChosen, isTabbed, isActive, route, hasNamespaces, onFocus }: {
  entry: Entry; index: number; at: number; now: number; isChosen: boolean; isTabbed: boolean; isActive: boolean; route: Route; hasNamespaces: boolean; onFocus: () => void;
}) {
  const { lock, ended } = entry;
  const to = { ...route, lock: { namespace: lock.namespace, key: lock.key, function: lock.function } };
  const behind = [lock.holder_ref && lock.holder_ref.kind + " " + lock.holder_ref.name, lock.reason].filter(Boolean).join(" · ");
  const soon = isExpiring(entry, now) ? "soon" : "";
  const state = ended?.how ?? soon;
  return <div role="row" aria-rowindex={index + 2} class={"row lock " + (ended ? "over" : "") + (isChosen ? " chosen" : "")} data-key={lock.key}
    ref={element => { if (element) element.style.transform = `translateY(${at}px)`; }}
    onClick={event => { if (!(event.target as Element).closest("a") && !getSelection()?.toString()) go(to); }}>
    <span role="cell" class="key">
      <a href={hashOf(to)} data-active={isActive ? "" : undefined} tabIndex={isTabbed ? 0 : -1} aria-current={isChosen ? "true" : undefined} onFocus={onFocus}
        onClick={event => { if (!event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); go(to); } }}><Data title={lock.key}>{lock.key}</Data></a>
      <small class="quiet">{hasNamespaces && <Data>{lock.namespace}</Data>}{lock.function && <> of <Data>{lock.function}</Data></>}
        {!!lock.guards?.length && <em class="tag">guards {lock.guards.length}</em>}</small>
    </span>
    <span role="cell" class="holder">
      <span class="who"><i class={"mark hue" + hueOf(lock.holder)} aria-hidden="true" /><Who user={lock.holder} /></span>
      <small class="quiet">{behind ? <Data title={behind}>{behind}</Data> : ""}</small>
    </span>
    <span role="cell" class={"expiry " + state}>
      <span class="left">{ended ? ended.how : duration(entry.expires - now)}</span><Bar entry={entry} now={now} />
    </span>
    <span role="cell" class="line"><Dots count={entry.waiting} most={5} /></span>
    <span role="cell" class="since quiet">{duration((ended?.at ?? now) - entry.acquired, false)}</span>
  </div>;
}
