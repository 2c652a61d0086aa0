package envelope

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// text reads a string, from its opening to behind its closing quote.
func (s *scanner) text() error {
	s.next++
	for s.next < len(s.data) {
		switch c := s.data[s.next]; {
		case c == '"':
			s.next++
			return nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		case c < ' ':
			return s.fail("a control character in a string must be escaped")
		case c < utf8.RuneSelf:
			s.next++
		default:
			_, size := utf8.DecodeRune(s.data[s.next:])
			if size == 1 {
				return s.fail("not valid UTF-8")
			}
			s.next += size
		}
	}
	return s.unexpected("a closing quote")
}

// escape reads an escape sequence. A surrogate must come as one of a pair.
func (s *scanner) escape() error {
	start := s.next
	s.next++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.next++
		return nil
	case 'u':
	default:
		return s.unexpected("an escape sequence")
	}
	first, err := s.codeUnit()
	if err != nil || !utf16.IsSurrogate(first) {
		return err
	}
	if s.peek() == '\\' && s.next+1 < len(s.data) && s.data[s.next+1] == 'u' {
		s.next++
		second, err := s.codeUnit()
		if err != nil {
			return err
		}
		if utf16.DecodeRune(first, second) != utf8.RuneError {
			return nil
		}
	}
	s.next = start
	return s.fail("a lone surrogate is not a character")
}

// codeUnit reads the "uXXXX" of an escape sequence.
func (s *scanner) codeUnit() (rune, error) {
	s.next++
	start := s.next
	for s.next < start+4 {
		if c := s.peek(); !isDigit(c) && ('a' > c || c > 'f') && ('A' > c || c > 'F') {
			return 0, s.unexpected("a hexadecimal digit")
		}
		s.next++
	}
	unit, err := strconv.ParseUint(string(s.data[start:s.next]), 16, 16)
	return rune(unit), err
}

// unquote returns the text of a string that was scanned, given with its quotes. It
// copies only what has escape sequences.
func unquote(quoted []byte) []byte {
	content := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(content, '\\') < 0 {
		return content
	}
	var text string
	// It cannot fail: the scanner has seen nothing but valid escape sequences.
	_ = json.Unmarshal(quoted, &text)
	return []byte(text)
}

// decodeText returns the text of a value, if that is a string.
func decodeText(raw json.RawMessage) (text string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return string(unquote(raw)), true
}
