// Package servertime estimates the time of the API server. Replicas with wrong clocks then stamp
// and judge locks alike.
//
// Every response of the API server carries its time in whole seconds. Together with the local
// times at which the request was sent and the response received, it bounds how far the server's
// clock is ahead of the local one:
//
//	date - received <= offset <= date + 1s - sent
//
// The bounds of several responses together narrow the offset down to milliseconds. The estimate is
// the local time, corrected as little as these bounds require. A local clock within the bounds is
// not corrected at all.
package servertime
