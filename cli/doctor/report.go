package doctor

import (
	"fmt"
	"slices"
)

// Status says how a check has ended.
type Status string

// The statuses, from the best to the worst. A check that was skipped says nothing of the installation.
const (
	Skip Status = "skip"
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Finding is the result of one check.
type Finding struct {
	// Check is what was looked at, such as "webhook".
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Message says what was found, in one line, without a full stop.
	Message string `json:"message"`
	// Do says what the user can do. Empty if there is nothing to do.
	Do string `json:"do,omitempty"`
}

// Worst returns the worst status of the findings, and [OK] if there are none or all were skipped.
func Worst(findings []Finding) Status {
	order := []Status{Skip, OK, Warn, Fail}
	worst := OK
	for _, finding := range findings {
		if slices.Index(order, finding.Status) > slices.Index(order, worst) {
			worst = finding.Status
		}
	}
	return worst
}

// ok, skipped, warning and failed return findings of a check.
func ok(check, format string, args ...any) Finding {
	return Finding{Check: check, Status: OK, Message: fmt.Sprintf(format, args...)}
}

func skipped(check, format string, args ...any) Finding {
	return Finding{Check: check, Status: Skip, Message: fmt.Sprintf(format, args...)}
}

func warning(check, message, do string) Finding {
	return Finding{Check: check, Status: Warn, Message: message, Do: do}
}

func failed(check, message, do string) Finding {
	return Finding{Check: check, Status: Fail, Message: message, Do: do}
}
