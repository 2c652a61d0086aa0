package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/itchyny/gojq"
)

// jqCall is a call of jq in a block of shell commands.
var jqCall = regexp.MustCompile(`(?s)jq (-n?r) '([^']+)' audit\.log`)

// TestQueriesOfTheAuditPage runs the jq lines of docs/audit.md on records whose answers are known.
func TestQueriesOfTheAuditPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "audit.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := jqCall.FindAllStringSubmatch(string(text), -1)
	// In the order of the page.
	want := []string{
		"", // The example is about a key of its own.
		"payments\tcrashed\t2\t3\npayments\traced\t1\t1\n",
		"payments\ttight\t2\t4\n",
		"payments\tdirect\t1011\tsystem:serviceaccount:payments:worker\t2026-11-20T10:02:40.000000Z\n" +
			"payments\tdraft\t\tsystem:serviceaccount:payments:worker\t2026-11-20T10:03:30.000000Z\n" +
			"payments\topen\t1010\tsystem:serviceaccount:payments:worker\t2026-11-20T10:01:35.000000Z\n",
		"2026-11-20T10:09:00.000000Z\t2026-11-20T10:09:05.000000Z\tRenewed\t3\talice\tbuffer_full\n",
		"2026-11-20T10:00:39.000000Z\tWriteAdmitted\tsystem:serviceaccount:payments:worker\tupdate\t\tconfigmaps\tsettings\tcalm\t1001\n" +
			"2026-11-20T10:00:39.500000Z\tWriteRefused\tsystem:serviceaccount:payments:worker\tdelete\tapps\tdeployments\tweb\tcalm\t1001\n",
		"2026-11-20T10:10:00.000000Z\tRefused\tbob\tpayments\tstuck\t\tbob lacks the verb\t\n" +
			"2026-11-20T10:10:01.000000Z\tForceReleased\tcarol\tpayments\tstuck\talice\tit hangs\tdry run\n" +
			"2026-11-20T10:10:02.000000Z\tForceReleased\tcarol\tpayments\tstuck\talice\tit hangs\tadmitted\n" +
			"2026-11-20T10:02:15.000000Z\tForceReleased\tcarol\tpayments\tdirect\tsystem:serviceaccount:payments:worker\ta look\tdry run\n",
	}
	if len(commands) != len(want) {
		t.Fatalf("the page has %d calls of jq, the test knows %d", len(commands), len(want))
	}
	for i, command := range commands {
		if got := runQuery(t, command[2], strings.Contains(command[1], "n")); got != want[i] {
			t.Errorf("%s\nprints\n%s\nwant\n%s", command[0], got, want[i])
		}
	}
}

// runQuery returns what jq prints with -r: each result as a line, texts without quotes. With isNull, the
// query reads the records itself.
func runQuery(t *testing.T, query string, isNull bool) string {
	t.Helper()
	parsed, err := gojq.Parse(query)
	if err != nil {
		t.Fatal(err)
	}
	records := readRecords(t)
	inputs := gojq.NewIter(records...)
	code, err := gojq.Compile(parsed, gojq.WithInputIter(inputs))
	if err != nil {
		t.Fatal(err)
	}
	starts := records
	if isNull {
		starts = []any{nil}
	}
	var out bytes.Buffer
	for _, start := range starts {
		results := code.Run(start)
		for result, ok := results.Next(); ok; result, ok = results.Next() {
			if err, isError := result.(error); isError {
				t.Fatal(err)
			}
			fmt.Fprintln(&out, result)
		}
	}
	return out.String()
}

func readRecords(t *testing.T) []any {
	t.Helper()
	file, err := os.Open("testdata/audit.log")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	decoder := json.NewDecoder(file)
	var records []any
	for {
		var record map[string]any
		switch err := decoder.Decode(&record); {
		case err == nil:
			records = append(records, record)
		case len(records) > 0 && errors.Is(err, io.EOF):
			return records
		default:
			t.Fatal(err)
		}
	}
}
