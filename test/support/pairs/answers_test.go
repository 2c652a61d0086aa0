package pairs

import "testing"

func TestJudgesTwoAnswers(t *testing.T) {
	release := Answers{Ended: "released", Others: []string{"not held"}}
	conditional := Answers{Ended: "released", Missed: "changed", Others: []string{"not held"}}
	renewal := Answers{Changed: "renewed", Others: []string{"renewed", "not held"}}
	conditionalRenewal := Answers{Missed: "changed", Changed: "renewed", Others: []string{"renewed", "not held"}}
	force := Answers{Ended: "released", Others: []string{"not held"}, EndsNext: true}
	repetition := Answers{Took: "acquired", Changed: "acquired", Others: []string{"acquired", "not held"}}
	acquisition := Answers{Took: "acquired", Others: []string{"held"}}
	for name, test := range map[string]struct {
		calls   [2]Answers
		answers [2]string
		// want is the ender of answers that are true.
		want   int
		isTrue bool
		// hasWaiter says that another caller waits, and isNextEnded that its grant has ended as well.
		hasWaiter, isNextEnded bool
	}{
		"the first ended it":                        {calls: [2]Answers{release, release}, answers: [2]string{"released", "not held"}, want: 0, isTrue: true},
		"the second ended it":                       {calls: [2]Answers{release, release}, answers: [2]string{"not held", "released"}, want: 1, isTrue: true},
		"both ended it":                             {calls: [2]Answers{release, release}, answers: [2]string{"released", "released"}, want: nobody},
		"nobody ended it":                           {calls: [2]Answers{release, release}, answers: [2]string{"not held", "not held"}, want: nobody},
		"an answer of its own":                      {calls: [2]Answers{release, release}, answers: [2]string{"released", "unavailable"}, want: nobody},
		"no answer":                                 {calls: [2]Answers{release, release}, answers: [2]string{"released", ""}, want: nobody},
		"renewed before the end":                    {calls: [2]Answers{release, renewal}, answers: [2]string{"released", "renewed"}, want: 0, isTrue: true},
		"not renewed after the end":                 {calls: [2]Answers{release, renewal}, answers: [2]string{"released", "not held"}, want: 0, isTrue: true},
		"lost, and nobody ended it":                 {calls: [2]Answers{release, renewal}, answers: [2]string{"not held", "not held"}, want: nobody},
		"renewed, and nobody ended it":              {calls: [2]Answers{release, renewal}, answers: [2]string{"not held", "renewed"}, want: nobody},
		"renewed twice":                             {calls: [2]Answers{renewal, renewal}, answers: [2]string{"renewed", "renewed"}, want: nobody, isTrue: true},
		"lost beside a renewal":                     {calls: [2]Answers{renewal, renewal}, answers: [2]string{"renewed", "not held"}, want: nobody},
		"changed beside a renewal":                  {calls: [2]Answers{conditional, renewal}, answers: [2]string{"changed", "renewed"}, want: nobody, isTrue: true},
		"changed beside a release":                  {calls: [2]Answers{conditional, release}, answers: [2]string{"changed", "released"}, want: 1, isTrue: true},
		"changed beside nothing":                    {calls: [2]Answers{conditional, release}, answers: [2]string{"changed", "not held"}, want: nobody},
		"changed beside a loss":                     {calls: [2]Answers{conditional, renewal}, answers: [2]string{"changed", "not held"}, want: nobody},
		"twice changed by nothing":                  {calls: [2]Answers{conditional, conditional}, answers: [2]string{"changed", "changed"}, want: nobody},
		"acquired after the end":                    {calls: [2]Answers{release, acquisition}, answers: [2]string{"released", "acquired"}, want: 0, isTrue: true},
		"refused before the end":                    {calls: [2]Answers{release, acquisition}, answers: [2]string{"released", "held"}, want: 0, isTrue: true},
		"acquired by two":                           {calls: [2]Answers{acquisition, acquisition}, answers: [2]string{"acquired", "acquired"}, want: nobody},
		"acquired, and nobody ended the one":        {calls: [2]Answers{renewal, acquisition}, answers: [2]string{"renewed", "acquired"}, want: nobody},
		"renewed on a condition, and renewed":       {calls: [2]Answers{conditionalRenewal, renewal}, answers: [2]string{"renewed", "renewed"}, want: nobody, isTrue: true},
		"changed by a renewal":                      {calls: [2]Answers{conditionalRenewal, renewal}, answers: [2]string{"changed", "renewed"}, want: nobody, isTrue: true},
		"renewed twice on one condition":            {calls: [2]Answers{conditionalRenewal, conditionalRenewal}, answers: [2]string{"renewed", "renewed"}, want: nobody},
		"renewed once on one condition":             {calls: [2]Answers{conditionalRenewal, conditionalRenewal}, answers: [2]string{"renewed", "changed"}, want: nobody, isTrue: true},
		"missed by two renewals":                    {calls: [2]Answers{conditionalRenewal, conditionalRenewal}, answers: [2]string{"changed", "changed"}, want: nobody},
		"changed by a caller that was refused":      {calls: [2]Answers{conditionalRenewal, acquisition}, answers: [2]string{"changed", "held"}, want: nobody},
		"released on a condition, or renewed on it": {calls: [2]Answers{conditional, conditionalRenewal}, answers: [2]string{"changed", "renewed"}, want: nobody, isTrue: true},
		"released on a condition and renewed on it": {calls: [2]Answers{conditional, conditionalRenewal}, answers: [2]string{"released", "renewed"}, want: nobody},
		"released on a condition and renewed":       {calls: [2]Answers{conditional, renewal}, answers: [2]string{"released", "renewed"}, want: nobody},
		"released on a condition, and not renewed":  {calls: [2]Answers{conditional, conditionalRenewal}, answers: [2]string{"released", "not held"}, want: 0, isTrue: true},
		"renewed on a condition before the end":     {calls: [2]Answers{release, conditionalRenewal}, answers: [2]string{"released", "renewed"}, want: 0, isTrue: true},
		"released on a condition and acquired anew": {calls: [2]Answers{conditional, repetition}, answers: [2]string{"released", "acquired"}, want: 0, isTrue: true},
		"changed by a repetition":                   {calls: [2]Answers{conditional, repetition}, answers: [2]string{"changed", "acquired"}, want: nobody, isTrue: true},
		"ended, and the next one by force":          {calls: [2]Answers{release, force}, answers: [2]string{"released", "released"}, want: 0, isTrue: true, hasWaiter: true, isNextEnded: true},
		"ended by force after the end":              {calls: [2]Answers{force, release}, answers: [2]string{"released", "released"}, want: 1, isTrue: true, hasWaiter: true, isNextEnded: true},
		"both ended by force":                       {calls: [2]Answers{force, force}, answers: [2]string{"released", "released"}, want: 0, isTrue: true, hasWaiter: true, isNextEnded: true},
		"ended by force, and nobody waits":          {calls: [2]Answers{release, force}, answers: [2]string{"released", "released"}, want: nobody},
		"both ended it while a caller waits":        {calls: [2]Answers{release, release}, answers: [2]string{"released", "released"}, want: nobody, hasWaiter: true},
		"ended by force alone while a caller waits": {calls: [2]Answers{release, force}, answers: [2]string{"not held", "released"}, want: 1, isTrue: true, hasWaiter: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := judge(test.calls, test.answers, test.hasWaiter)
			if (err == nil) != test.isTrue || got != (verdict{test.want, test.isNextEnded}) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
