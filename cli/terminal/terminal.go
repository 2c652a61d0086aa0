// Package terminal tells what the output of a command can show.
package terminal

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/term"
)

// Terminal is what the output can show.
type Terminal struct {
	// IsTerminal says that a person is watching. In a pipe or a file, there are no
	// colours and no limit of the width.
	IsTerminal bool
	// Width is the number of columns. Zero means any.
	Width int
	// Height is the number of lines. Zero means any.
	Height int
	// HasColor says that colours may be used: not in pipes, not with NO_COLOR, and not
	// on a terminal that is called "dumb".
	HasColor bool
}

// Of returns what the output can show. The variable COLUMNS replaces the width of a
// terminal.
func Of(out io.Writer, getenv func(string) string) Terminal {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return Terminal{}
	}
	shown := Terminal{IsTerminal: true, Width: 80, Height: 24, HasColor: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
	if width, height, err := term.GetSize(int(file.Fd())); err == nil && width > 0 && height > 0 {
		shown.Width, shown.Height = width, height
	}
	if columns, err := strconv.Atoi(getenv("COLUMNS")); err == nil && columns > 0 {
		shown.Width = columns
	}
	return shown
}
