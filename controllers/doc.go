// Package controllers holds the reconcilers, in one package each: expiry, holders and
// jobgate. They share leadership and reaper, and do not import each other.
package controllers
