// Package reaper is what the controllers that delete locks share.
package reaper
