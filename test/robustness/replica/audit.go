package main

import (
	"encoding/json"

	"forrst.dev/lock-operator/lock/audit"
)

// auditReports reports the records of the audit, at once and in order.
type auditReports struct{ *reports }

// Record implements [audit.Sink].
func (a auditReports) Record(record audit.Record) {
	line, err := json.Marshal(record)
	if err != nil {
		panic(err) // Only texts, numbers and times.
	}
	a.write("audit %s", line)
}
