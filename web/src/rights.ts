// What the viewer may do with the lock that is looked at.

import { useEffect, useState } from "preact/hooks";
import { mayPass, pauseAfter, readRights, Refusal, type Problem, type Rights } from "./api";
import { idOf } from "./store";
import type { LockName } from "./route";

/** The rights with a lock, or why they are not told. They are read again with each new connection, after a failure, and when that is asked for. */
export function useRights(of: LockName, isLive: boolean): { rights?: Rights; problem?: Problem; askAgain: () => void } {
  const [rights, setRights] = useState<Rights>();
  const [problem, setProblem] = useState<Problem>();
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    if (!isLive) return;
    let isCurrent = true, timer = 0;
    const read = async (failures: number) => {
      try {
        const told = await readRights(of.namespace, of);
        if (!isCurrent) return;
        setRights(told);
        setProblem(undefined);
      } catch (error) {
        if (!isCurrent) return;
        if (mayPass(error)) timer = window.setTimeout(() => void read(failures + 1), pauseAfter(failures, error));
        else if (error instanceof Refusal) setProblem(error.problem);
      }
    };
    void read(0);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [idOf(of), isLive, asked]);
  return { rights, problem, askAgain: () => setAsked(count => count + 1) };
}
