// Package servertime tells the time of the API server, so that replicas whose own
// clocks are wrong stamp and judge locks alike.
//
// Every response of the API server carries its time in whole seconds. Together with
// the local times at which the request was sent and the response received, it bounds
// how far the server's clock is ahead of the local one:
//
//	date - received <= offset <= date + 1s - sent
//
// The bounds of several responses together narrow that down to milliseconds. The
// time told is then the local one, corrected as little as these bounds ask for. A
// clock that is as right as they can tell is not corrected at all.
package servertime
