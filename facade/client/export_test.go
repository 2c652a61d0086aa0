package client

// DrawFrom has all clients draw what spreads their requests from a source of the tests, which several goroutines use.
func DrawFrom(source func() float64) { random = source }
