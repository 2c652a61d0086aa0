// A forced release: what will happen is said first.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { forceRelease, Refusal, type Lock, type Rights, type Waiter } from "./api";
import { Copy, Data, lockCommand, quoted, Who } from "./bits";
import type { Entry } from "./store";

const maxReason = 1024;
const released = "Done: the lock was taken from its holder.";

export function ForceRelease({ entry, first, waiting, isAtLeast, isLive, rights, onClose, onForbidden, onLate }: {
  entry?: Entry; first?: Waiter; waiting?: number; isAtLeast: boolean; isLive: boolean; rights: Rights;
  onClose: (told: string) => void; onForbidden: () => void; onLate: (told: string) => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const isShown = useRef(true);
  const [reason, setReason] = useState("");
  const [isSending, setSending] = useState(false);
  const [problem, setProblem] = useState("");
  // What was on the screen when it was decided on.
  const [seen, setSeen] = useState(entry!);
  useLayoutEffect(() => { // Not after the next frame: a key pressed in between would be lost, since the page leaves it to the dialog.
    dialog.current!.showModal();
    return () => { isShown.current = false; };
  }, []);
  const { lock } = seen;
  const present = entry && !entry.ended ? entry : undefined;
  const isOther = present?.lock.acquired_at !== lock.acquired_at;
  const isEnding = lock.fencing_token === undefined;
  const isMissing = rights.is_authenticated && !reason.trim();
  const isOff = !isLive || isOther || isEnding || isMissing || isSending;
  const tell = (told: string, show: (told: string) => void) =>
    isShown.current ? show(told) : onLate(`The forced release of ${lock.key} in ${lock.namespace}: ${told}`);
  const send = async (event: Event) => {
    event.preventDefault();
    if (isOff) return;
    setSending(true);
    setProblem("");
    try {
      await forceRelease(lock, reason);
      tell(released, onClose);
    } catch (error) {
      setSending(false);
      if (error instanceof Refusal && error.status === 403) onForbidden();
      tell(whyNot(error), setProblem);
    }
  };
  // What is under way cannot be taken back, and its outcome is shown here. A browser may close the dialog all the same.
  const close = () => {
    if (!isSending) onClose("");
    else if (!dialog.current!.open) dialog.current!.showModal();
  };
  return <dialog ref={dialog} aria-labelledby="force-title" onCancel={event => { event.preventDefault(); close(); }} onClose={close}>
    <form onSubmit={send}>
      <h2 id="force-title">Release <Data>{lock.key}</Data> by force?</h2>
      <Outcome lock={lock} first={first} waiting={waiting} isAtLeast={isAtLeast} rights={rights} />
      <label for="reason">Reason{rights.is_authenticated ? "" : " (optional)"}</label>
      <textarea id="reason" rows={2} maxLength={maxReason} value={reason} autoFocus required={rights.is_authenticated}
        placeholder="worker-7 lost its disk" onInput={event => setReason(event.currentTarget.value)} />
      {!lock.function && <><p class="quiet small">The same in a terminal:</p>
        <Copy text={lockCommand("free", lock, "--reason " + quoted(reason || "…"))} /></>}
      {!isLive && <p class="notice bad" role="alert">The connection is lost: another holder may have the lock by now.</p>}
      {isOther && <Other present={present} onLook={setSeen} />}
      {!isOther && isEnding && <p class="notice bad" role="alert">The lock is being deleted already.</p>}
      {problem && <p class="notice bad" role="alert">{problem}</p>}
      <div class="buttons">
        <button type="button" disabled={isSending} onClick={close}>Keep the lock</button>
        <button type="submit" class="force" disabled={isOff}>{isSending ? "Releasing…" : "Release by force"}</button>
      </div>
    </form>
  </dialog>;
}

/** Why a forced release was not done, as far as that is known: what is on the screen may be old although the stream is open. */
function whyNot(error: unknown): string {
  if (!(error instanceof Refusal)) return "The service did not answer. The lock may have ended: look before you try again.";
  return error.status === 412 ? "Meanwhile another holder has got the lock. Nothing was done." : error.message;
}

/** What will happen. */
function Outcome({ lock, first, waiting, isAtLeast, rights }: { lock: Lock; first?: Waiter; waiting?: number; isAtLeast: boolean; rights: Rights }) {
  const ref = lock.holder_ref;
  return <ul class="outcome">
    <li><Who user={lock.holder} />{ref && <> ({ref.kind} <Data>{ref.name}</Data>)</>} loses the lock at once.
      Its program is not stopped: it may go on until it next renews. Stop it first, or be sure that what the lock protects checks fencing tokens.</li>
    <li><Next first={first} waiting={waiting} isAtLeast={isAtLeast} /></li>
    {ref?.kind === "Job" && <li>If the Job runs under this lock by its label, it is suspended, its Pods are deleted, and it queues again.</li>}
    {!!lock.guards?.length && <li>Other users may write the {lock.guards.length === 1 ? "guarded object" : "guarded objects"} again.</li>}
    <li>{rights.is_authenticated ? <>Your name, <Data>{rights.user}</Data>, and the reason go on record.</>
      : "The reason goes on record. No name does: callers are not authenticated here."}</li>
  </ul>;
}

function Next({ first, waiting, isAtLeast }: { first?: Waiter; waiting?: number; isAtLeast: boolean }) {
  if (waiting === undefined) return <>It is not known whether callers wait: the first of them gets the lock next.</>;
  if (!waiting) return <>The lock is free then. No one waits for it.</>;
  return <>{first ? <Who user={first.holder} /> : "The first in line"} gets the lock next{(waiting > 1 || isAtLeast) && `, ahead of ${isAtLeast ? "at least " : ""}${waiting - 1 || 1} more`}.</>;
}

function Other({ present, onLook }: { present?: Entry; onLook: (present: Entry) => void }) {
  if (!present) return <p class="notice bad" role="alert">Meanwhile the lock has ended by itself.</p>;
  return <p class="notice bad" role="alert">Meanwhile <Who user={present.lock.holder} /> holds the lock. <button type="button"
    onClick={() => onLook(present)}>Look at this holder instead</button></p>;
}
