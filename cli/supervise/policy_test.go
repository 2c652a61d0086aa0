package supervise

import (
	"testing"
	"time"
)

func TestPolicy(t *testing.T) {
	type answer struct {
		stage Stage
		next  time.Duration
	}
	tests := map[string]struct {
		onLost OnLost
		left   time.Duration
		want   answer
	}{
		"there is time":                     {OnLostKill, 20 * time.Second, answer{StageRun, 7 * time.Second}},
		"a moment before the grace":         {OnLostKill, 7*time.Second + 1, answer{StageRun, 7 * time.Second}},
		"the grace begins":                  {OnLostKill, 7 * time.Second, answer{StageTerm, 2 * time.Second}},
		"the grace is nearly over":          {OnLostKill, 2*time.Second + 1, answer{StageTerm, 2 * time.Second}},
		"the grace is over":                 {OnLostKill, 2 * time.Second, answer{StageKill, 0}},
		"lost":                              {OnLostKill, 0, answer{StageKill, 0}},
		"expired long ago":                  {OnLostKill, -time.Hour, answer{StageKill, 0}},
		"term: there is time":               {OnLostTerm, 20 * time.Second, answer{StageRun, 7 * time.Second}},
		"term: the grace begins":            {OnLostTerm, 7 * time.Second, answer{StageTerm, 0}},
		"term: lost":                        {OnLostTerm, 0, answer{StageTerm, 0}},
		"ignore: the grace would begin":     {OnLostIgnore, time.Second, answer{StageRun, 0}},
		"ignore: lost":                      {OnLostIgnore, -time.Second, answer{StageRun, 0}},
		"ignore: no next stage if in force": {OnLostIgnore, time.Minute, answer{StageRun, 0}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			policy, err := NewPolicy(test.onLost, 30*time.Second, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			var got answer
			if got.stage, got.next = policy.At(test.left); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestNewPolicy(t *testing.T) {
	tests := map[string]struct {
		onLost     OnLost
		ttl, grace time.Duration
		want       Policy
		isRefused  bool
	}{
		"default grace":              {OnLostKill, 20 * time.Second, -1, Policy{OnLostKill, 5 * time.Second, 2 * time.Second}, false},
		"default grace of an hour":   {OnLostKill, time.Hour, -1, Policy{OnLostKill, 10 * time.Second, 2 * time.Second}, false},
		"no grace":                   {OnLostKill, 30 * time.Second, 0, Policy{OnLostKill, 0, 2 * time.Second}, false},
		"the longest grace":          {OnLostTerm, 30 * time.Second, 13 * time.Second, Policy{OnLostTerm, 13 * time.Second, 2 * time.Second}, false},
		"the shortest ttl":           {OnLostKill, 2 * time.Second, -1, Policy{OnLostKill, 500 * time.Millisecond, 400 * time.Millisecond}, false},
		"a grace that is too long":   {OnLostKill, 30 * time.Second, 13*time.Second + 1, Policy{}, true},
		"a ttl that is too short":    {OnLostKill, 2*time.Second - 1, -1, Policy{}, true},
		"an unknown way of stopping": {"explode", 30 * time.Second, -1, Policy{}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := NewPolicy(test.onLost, test.ttl, test.grace)
			if got != test.want || (err != nil) != test.isRefused {
				t.Errorf("got %+v, %v; want %+v", got, err, test.want)
			}
		})
	}
}
