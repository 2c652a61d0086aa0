package terminal

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// ellipsis stands for what was cut off.
const ellipsis = "…"

// Clean replaces what a terminal could take for a command or would not show: keys,
// holders, reasons and logs are written by others.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsPrint(r):
			return r
		default:
			return unicode.ReplacementChar
		}
	}, text)
}

// Columns returns how many columns a clean text takes.
func Columns(text string) int {
	columns := 0
	for _, r := range text {
		columns += columnsOf(r)
	}
	return columns
}

// Cut shortens a clean text to so many columns, with an ellipsis at the end.
func Cut(text string, columns int) string {
	if Columns(text) <= columns {
		return text
	}
	left := columns - 1
	for index, r := range text {
		if left -= columnsOf(r); left < 0 {
			return text[:index] + ellipsis
		}
	}
	return text
}

// Pad fills a clean text up to so many columns.
func Pad(text string, columns int) string {
	return text + strings.Repeat(" ", max(0, columns-Columns(text)))
}

func columnsOf(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}
