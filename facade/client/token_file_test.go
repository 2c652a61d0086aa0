package client

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestATokenFileIsReadAgain(t *testing.T) {
	file := &tokenFile{path: filepath.Join(t.TempDir(), "token")}
	clock := clocktesting.NewFakePassiveClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))
	if token, err := file.read(clock); err == nil {
		t.Errorf("got %q without a file", token)
	}
	steps := []struct {
		content string
		after   time.Duration
		want    string
	}{
		{content: "\n", want: ""},
		{content: "first\n", want: "first"},
		{content: "second", after: tokenFileAge - 1, want: "first"},
		{content: "second", after: 1, want: "second"},
		{content: "", after: tokenFileAge, want: "second"},
		{content: "third", want: "third"},
		{content: "fourth", after: -time.Hour, want: "fourth"},
	}
	for _, step := range steps {
		if err := os.WriteFile(file.path, []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		}
		clock.SetTime(clock.Now().Add(step.after))
		token, err := file.read(clock)
		if token != step.want || (err == nil) != (step.want != "") {
			t.Errorf("with %q in the file: got %q, %v, want %q", step.content, token, err, step.want)
		}
	}
}
