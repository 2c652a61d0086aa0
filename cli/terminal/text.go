package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"

	"forrst.dev/lock-operator/api/v1alpha1"
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

// IsHidden reports whether a terminal shows nothing, or something else, for the character.
func IsHidden(char rune) bool {
	return !unicode.IsPrint(char) || v1alpha1.ValidateKey("."+string(char)+".") != nil
}

// Visible writes the hidden characters of a text, and white space at its ends, as \u200b: two keys that differ must not
// look alike.
func Visible(text string) string {
	var visible strings.Builder
	for index, char := range text {
		isEnd := index == 0 || index+utf8.RuneLen(char) >= len(text)
		switch {
		case !IsHidden(char) && (!isEnd || !unicode.IsSpace(char)):
			visible.WriteRune(char)
		case char > 0xffff:
			fmt.Fprintf(&visible, `\U%08x`, char)
		default:
			fmt.Fprintf(&visible, `\u%04x`, char)
		}
	}
	return visible.String()
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
