package pairs

import "testing"

func TestJudgesTwoAnswers(t *testing.T) {
	release := Answers{Ended: "released", Others: []string{"not held"}}
	conditional := Answers{Ended: "released", Missed: "changed", Others: []string{"not held"}}
	renewal := Answers{Others: []string{"renewed", "not held"}}
	acquisition := Answers{Took: "acquired", Others: []string{"held"}}
	for name, test := range map[string]struct {
		calls   [2]Answers
		answers [2]string
		// want is the ender of answers that are true.
		want   int
		isTrue bool
	}{
		"the first ended it":                 {[2]Answers{release, release}, [2]string{"released", "not held"}, 0, true},
		"the second ended it":                {[2]Answers{release, release}, [2]string{"not held", "released"}, 1, true},
		"both ended it":                      {[2]Answers{release, release}, [2]string{"released", "released"}, nobody, false},
		"nobody ended it":                    {[2]Answers{release, release}, [2]string{"not held", "not held"}, nobody, false},
		"an answer of its own":               {[2]Answers{release, release}, [2]string{"released", "unavailable"}, nobody, false},
		"no answer":                          {[2]Answers{release, release}, [2]string{"released", ""}, nobody, false},
		"renewed before the end":             {[2]Answers{release, renewal}, [2]string{"released", "renewed"}, 0, true},
		"not renewed after the end":          {[2]Answers{release, renewal}, [2]string{"released", "not held"}, 0, true},
		"lost, and nobody ended it":          {[2]Answers{release, renewal}, [2]string{"not held", "not held"}, nobody, false},
		"renewed, and nobody ended it":       {[2]Answers{release, renewal}, [2]string{"not held", "renewed"}, nobody, false},
		"renewed twice":                      {[2]Answers{renewal, renewal}, [2]string{"renewed", "renewed"}, nobody, true},
		"lost beside a renewal":              {[2]Answers{renewal, renewal}, [2]string{"renewed", "not held"}, nobody, false},
		"changed beside a renewal":           {[2]Answers{conditional, renewal}, [2]string{"changed", "renewed"}, nobody, true},
		"changed beside a release":           {[2]Answers{conditional, release}, [2]string{"changed", "released"}, 1, true},
		"changed beside nothing":             {[2]Answers{conditional, release}, [2]string{"changed", "not held"}, nobody, false},
		"changed beside a loss":              {[2]Answers{conditional, renewal}, [2]string{"changed", "not held"}, nobody, false},
		"twice changed by nothing":           {[2]Answers{conditional, conditional}, [2]string{"changed", "changed"}, nobody, false},
		"acquired after the end":             {[2]Answers{release, acquisition}, [2]string{"released", "acquired"}, 0, true},
		"refused before the end":             {[2]Answers{release, acquisition}, [2]string{"released", "held"}, 0, true},
		"acquired by two":                    {[2]Answers{acquisition, acquisition}, [2]string{"acquired", "acquired"}, nobody, false},
		"acquired, and nobody ended the one": {[2]Answers{renewal, acquisition}, [2]string{"renewed", "acquired"}, nobody, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := judge(test.calls, test.answers); (err == nil) != test.isTrue || got != test.want {
				t.Errorf("%d, %v", got, err)
			}
		})
	}
}
