// A forced release: what will happen is said first.

import { useEffect, useRef, useState } from "preact/hooks";
import { forceRelease, Refusal, type Rights, type Waiter } from "./api";
import { Copy, Data, lockCommand, quoted, Who } from "./bits";
import type { Entry } from "./store";

const maxReason = 1024;

export function ForceRelease({ entry, first, waiting, isLive, rights, onClose }: {
  entry?: Entry; first?: Waiter; waiting?: number; isLive: boolean; rights: Rights; onClose: (told: string) => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [reason, setReason] = useState("");
  const [isSending, setSending] = useState(false);
  const [problem, setProblem] = useState("");
  // What was on the screen when it was decided on.
  const [seen, setSeen] = useState(entry!);
  useEffect(() => { dialog.current!.showModal(); }, []);
  const { lock } = seen;
  const present = entry && !entry.ended ? entry : undefined;
  const isOther = present?.lock.acquired_at !== lock.acquired_at;
  const isMissing = rights.is_authenticated && !reason.trim();
  const send = async (event: Event) => {
    event.preventDefault();
    if (!isLive || isOther || isMissing || isSending) return;
    setSending(true);
    setProblem("");
    try {
      await forceRelease(lock, reason);
      onClose("Done: the lock was taken from its holder.");
    } catch (error) {
      setSending(false);
      // What is on the screen may be old although the stream is open.
      setProblem(error instanceof Refusal ? error.status === 412 ? "Meanwhile another holder has got the lock. Nothing was done." : error.message : "The service did not answer. The lock may have ended: look before you try again.");
    }
  };
  return <dialog ref={dialog} aria-labelledby="force-title" onCancel={event => { event.preventDefault(); onClose(""); }} onClose={() => onClose("")}>
    <form onSubmit={send}>
      <h2 id="force-title">Release <Data>{lock.key}</Data> by force?</h2>
      <ul class="outcome">
        <li><Who user={lock.holder} />{lock.holder_ref && <> ({lock.holder_ref.kind} <Data>{lock.holder_ref.name}</Data>)</>} loses the lock at once.
          Its program is not stopped: it may go on until it next renews. Stop it first, or be sure that what the lock protects checks fencing tokens.</li>
        <li>{waiting ? <>{first ? <Who user={first.holder} /> : "The first in line"} gets the lock next{waiting > 1 && `, ahead of ${waiting - 1} more`}.</> : waiting === 0 ? "The lock is free then. No one waits for it." : "It is not known whether callers wait: the first of them gets the lock next."}</li>
        {lock.holder_ref?.kind === "Job" && <li>If the Job runs under this lock by its label, it is suspended, its Pods are deleted, and it queues again.</li>}
        {!!lock.guards?.length && <li>Other users may write the {lock.guards.length === 1 ? "guarded object" : "guarded objects"} again.</li>}
        <li>{rights.is_authenticated ? <>Your name, <Data>{rights.user}</Data>, and the reason go on record.</> : "The reason goes on record. No name does: callers are not authenticated here."}</li>
      </ul>
      <label for="reason">Reason{rights.is_authenticated ? "" : " (optional)"}</label>
      <textarea id="reason" rows={2} maxLength={maxReason} value={reason} autoFocus required={rights.is_authenticated}
        placeholder="worker-7 lost its disk" onInput={event => setReason(event.currentTarget.value)} />
      {!lock.function && <><p class="quiet small">The same in a terminal:</p>
        <Copy text={lockCommand("free", lock, "--reason " + quoted(reason || "…"))} /></>}
      {!isLive && <p class="notice bad" role="alert">The connection is lost: another holder may have the lock by now.</p>}
      {isOther && <p class="notice bad" role="alert">{present ? <>Meanwhile <Who user={present.lock.holder} /> holds the lock. <button type="button" onClick={() => setSeen(present)}>Look at this holder instead</button></>
        : "Meanwhile the lock has ended by itself."}</p>}
      {problem && <p class="notice bad" role="alert">{problem}</p>}
      <div class="buttons">
        <button type="button" onClick={() => onClose("")}>Keep the lock</button>
        <button type="submit" class="force" disabled={!isLive || isOther || isMissing || isSending}>{isSending ? "Releasing…" : "Release by force"}</button>
      </div>
    </form>
  </dialog>;
}
