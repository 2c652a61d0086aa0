package terminal_test

import (
	"strings"
	"testing"

	"forrst.dev/lock-operator/cli/terminal"
)

func TestATableIsAsWideAsTheTerminal(t *testing.T) {
	rows := [][]string{{"billing:report", strings.Repeat("why ", 40)}, {"鍵:レポート", "short"}}
	for _, width := range []int{30, 40, 80} {
		table := terminal.Table{Columns: []terminal.Column{{Header: "KEY", Least: 8}, {Header: "REASON", Least: 6}}, Width: width}
		var out strings.Builder
		if err := table.Write(&out, rows); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if got := terminal.Columns(strings.TrimSuffix(line, "\n")); got > width {
				t.Errorf("a line of %d columns on a terminal of %d: %q", got, width, line)
			}
		}
	}
}

func TestALongCellInAPipeWidensNoOtherRow(t *testing.T) {
	table := terminal.Table{Columns: []terminal.Column{{Header: "KEY", Least: 8}, {Header: "HELD"}}}
	long := strings.Repeat("k", 300)
	var out strings.Builder
	if err := table.Write(&out, [][]string{{long, "1m"}, {"short", "2m"}}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if lines[1] != long+"   1m" || len(lines[2]) > 100 {
		t.Errorf("got\n%s", out.String())
	}
}

func TestWhatPeopleLookForIsCutLast(t *testing.T) {
	table := terminal.Table{
		Columns: []terminal.Column{{Header: "KEY", Least: 8, Fair: 16}, {Header: "REASON", Least: 6}}, Width: 24,
	}
	var out strings.Builder
	if err := table.Write(&out, [][]string{{"billing:report", "why and how"}}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "billing:report   why an…") {
		t.Errorf("got\n%s", got)
	}
}

func TestTextOfOthersIsCleaned(t *testing.T) {
	if got := terminal.Clean("a\x1b[2Jb\nc\u202ed"); got != "a\ufffd[2Jb c\ufffdd" {
		t.Errorf("got %q", got)
	}
}

func TestCut(t *testing.T) {
	for _, test := range []struct {
		text    string
		columns int
		want    string
	}{{"abcdef", 6, "abcdef"}, {"abcdef", 5, "abcd…"}, {"鍵鍵鍵", 5, "鍵鍵…"}, {"鍵鍵鍵", 4, "鍵…"}, {"ab", 1, "…"}} {
		if got := terminal.Cut(test.text, test.columns); got != test.want {
			t.Errorf("Cut(%q, %d) is %q, want %q", test.text, test.columns, got, test.want)
		}
	}
}
