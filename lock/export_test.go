package lock

// DrawFrom has all pauses draw their jitter from a source of the tests, which several goroutines use.
func DrawFrom(source func() float64) { random = source }
