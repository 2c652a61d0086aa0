// Package reaper deletes locks that have ended, for the controllers that decide which.
package reaper
