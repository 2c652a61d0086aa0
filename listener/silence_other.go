//go:build !linux

package listener

import "time"

// BoundSilence does nothing here.
func (c *Conn) BoundSilence(time.Duration) {}
