package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// log is what "go test -json" says of a package that passes, one that passed before, one that fails, one whose time is over and
// one that does not compile.
const log = `{"Action":"run","Package":"p/good","Test":"TestGood"}
{"Action":"output","Package":"p/good","Test":"TestGood","Output":"chatter\n"}
{"Action":"pass","Package":"p/good","Test":"TestGood","Elapsed":1.5}
{"Action":"output","Package":"p/good","Output":"PASS\n"}
{"Action":"output","Package":"p/good","Output":"ok  \tp/good\t1.600s\n"}
{"Action":"pass","Package":"p/good","Elapsed":1.6}
{"Action":"run","Package":"p/cached","Test":"TestCached"}
{"Action":"pass","Package":"p/cached","Test":"TestCached","Elapsed":30}
{"Action":"output","Package":"p/cached","Output":"ok  \tp/cached\t(cached)\n"}
{"Action":"pass","Package":"p/cached","Elapsed":0.01}
{"Action":"run","Package":"p/late","Test":"TestLate"}
{"Action":"output","Package":"p/late","Test":"TestLate","Output":"panic: test timed out after 1s\n"}
{"Action":"output","Package":"p/late","Output":"FAIL\tp/late\t1.0s\n"}
{"Action":"fail","Package":"p/late","Elapsed":1}
{"Action":"run","Package":"p/bad","Test":"TestFine"}
{"Action":"output","Package":"p/bad","Test":"TestFine","Output":"also chatter\n"}
{"Action":"pass","Package":"p/bad","Test":"TestFine","Elapsed":0.1}
{"Action":"run","Package":"p/bad","Test":"TestBad"}
{"Action":"output","Package":"p/bad","Test":"TestBad","Output":"    want 1\n"}
{"Action":"fail","Package":"p/bad","Test":"TestBad","Elapsed":0.2}
{"Action":"output","Package":"p/bad","Output":"FAIL\tp/bad\t0.3s\n"}
{"Action":"fail","Package":"p/bad","Elapsed":0.3}
{"ImportPath":"p/broken","Action":"build-output","Output":"x.go:1: syntax error\n"}
no event
{"Action":"output","Package":"p/broken","Output":"FAIL\tp/broken [build failed]\n"}
{"Action":"fail","Package":"p/broken","FailedBuild":"p/broken"}
`

func TestOnlyWhatFailedIsPrintedWhole(t *testing.T) {
	var out strings.Builder
	if err := printEvents(strings.NewReader(log), &out); err != nil {
		t.Fatal(err)
	}
	want := "ok  \tp/good\t1.600s\nok  \tp/cached\t(cached)\npanic: test timed out after 1s\nFAIL\tp/late\t1.0s\n    want 1\nFAIL\tp/bad\t0.3s\nx.go:1: syntax error\nno event\nFAIL\tp/broken [build failed]\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error("printed (-want +got):\n" + diff)
	}
}

func TestSlowestPackagesTestsAndSpecs(t *testing.T) {
	folder := t.TempDir()
	report := `[{"SuitePath":"/x/suite","SpecReports":[{"ContainerHierarchyTexts":["A lock"],"LeafNodeText":"is held","RunTime":1700000000}]}]`
	for name, content := range map[string]string{"unit.json": log, "ginkgo/suite.json": report, "ginkgo/ended.json": `[{"SuitePath`} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := printSlowest(&out, folder, 2); err != nil {
		t.Fatal(err)
	}
	want := `| seconds | package |
| ---: | --- |
| 1.6 | p/good |
| 1.0 | p/late |

| seconds | test or spec |
| ---: | --- |
| 1.7 | suite: A lock is held |
| 1.5 | p/good: TestGood |

`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error("printed (-want +got):\n" + diff)
	}
}

func TestTheStatusIsThatOfGoTest(t *testing.T) {
	err := run(t.Context(), []string{"-log", filepath.Join(t.TempDir(), "log.json"), "--", "./no-such-folder"}, &strings.Builder{}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "exit status") {
		t.Errorf("run = %v, want the status of go test", err)
	}
}
