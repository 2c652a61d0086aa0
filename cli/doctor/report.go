package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Status says how a check has ended.
type Status string

// The statuses. A check that was skipped says nothing of the installation.
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

// Report is the findings in the order in which they build on each other.
type Report []Finding

// Worst returns the worst status, and [OK] if there is no finding or all checks were skipped.
func (r Report) Worst() Status {
	for _, status := range []Status{Fail, Warn} {
		if slices.ContainsFunc(r, func(finding Finding) bool { return finding.Status == status }) {
			return status
		}
	}
	return OK
}

// PrintJSON writes the report as JSON, with its worst status.
func (r Report) PrintJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Status   Status `json:"status"`
		Findings Report `json:"findings"`
	}{r.Worst(), r})
}

// Print writes the report for people.
func (r Report) Print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, finding := range r {
		status := string(finding.Status)
		if finding.Status == Fail {
			status = strings.ToUpper(status)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", status, finding.Check, finding.Message)
		if finding.Do != "" {
			fmt.Fprintf(table, "\t\t→ %s\n", finding.Do)
		}
	}
	return table.Flush()
}

// add adds a finding. Do is what the user can do.
func (r *Report) add(status Status, check, do, format string, args ...any) {
	*r = append(*r, Finding{Check: check, Status: status, Message: fmt.Sprintf(format, args...), Do: do})
}

// skipUnread says that the caller may not read what a check looks at, or why it could not be read.
func (r *Report) skipUnread(check, what string, err error) {
	if apierrors.IsForbidden(err) {
		r.add(Skip, check, "", "you may not read %s", what)
		return
	}
	r.add(Fail, check, "run this again", "%s could not be read: %v", what, err)
}
