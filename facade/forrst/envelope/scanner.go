package envelope

import (
	"fmt"
	"unicode/utf8"
)

// MaxDepth is how deep objects and arrays of a document may be nested. Deeper ones
// are refused as unparseable. It is the default of PHP's decoder, on which the
// reference implementation of the protocol rests.
const MaxDepth = 512

// syntaxError says where a text stops being JSON.
type syntaxError struct {
	position int
	message  string
}

// Error implements error.
func (e *syntaxError) Error() string { return e.message }

// scanner finds the extent of JSON values. It accepts RFC 8259 and nothing more,
// except that it refuses text that is no Unicode: invalid UTF-8 and escapes of lone
// surrogates, which encoding/json would silently replace.
type scanner struct {
	data  []byte
	next  int
	depth int
}

// document reads one value that nothing but white space surrounds.
func (s *scanner) document() error {
	s.space()
	if err := s.value(); err != nil {
		return err
	}
	return s.end()
}

// end checks that nothing but white space is left.
func (s *scanner) end() error {
	s.space()
	if s.next < len(s.data) {
		return s.fail("unexpected data after the end of the document")
	}
	return nil
}

func (s *scanner) value() error {
	switch c := s.peek(); {
	case c == '{':
		return s.object(nil)
	case c == '[':
		return s.array(nil)
	case c == '"':
		return s.text()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	case c == '-' || isDigit(c):
		return s.number()
	}
	return s.unexpected("a value")
}

// object reads an object and, if visit is not nil, passes it each member: the name
// with its quotes and the value.
func (s *scanner) object(visit func(name, value []byte)) error {
	if err := s.open(); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := s.more('}', first)
		if !more {
			return err
		}
		name, err := s.name()
		if err != nil {
			return err
		}
		start := s.next
		if err := s.value(); err != nil {
			return err
		}
		if visit != nil {
			visit(name, s.data[start:s.next])
		}
	}
}

// array reads an array and, if visit is not nil, passes it each element.
func (s *scanner) array(visit func(element []byte)) error {
	if err := s.open(); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := s.more(']', first)
		if !more {
			return err
		}
		start := s.next
		if err := s.value(); err != nil {
			return err
		}
		if visit != nil {
			visit(s.data[start:s.next])
		}
	}
}

// open reads an opening bracket.
func (s *scanner) open() error {
	if s.depth == MaxDepth {
		return s.fail(fmt.Sprintf("nested more than %d levels deep", MaxDepth))
	}
	s.depth++
	s.next++
	return nil
}

// more reads what is between two elements. It reports false, having read the closing
// bracket, if there are no more.
func (s *scanner) more(closing byte, first bool) (bool, error) {
	s.space()
	if s.peek() == closing {
		s.next++
		s.depth--
		return false, nil
	}
	if first {
		return true, nil
	}
	if s.peek() != ',' {
		return false, s.unexpected(fmt.Sprintf("a comma or %q", closing))
	}
	s.next++
	s.space()
	return true, nil
}

// name reads the name of a member and the colon behind it.
func (s *scanner) name() ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.unexpected("the name of a member")
	}
	start := s.next
	if err := s.text(); err != nil {
		return nil, err
	}
	name := s.data[start:s.next]
	s.space()
	if s.peek() != ':' {
		return nil, s.unexpected("a colon")
	}
	s.next++
	s.space()
	return name, nil
}

func (s *scanner) literal(word string) error {
	for i := range len(word) {
		if s.peek() != word[i] {
			return s.unexpected(word)
		}
		s.next++
	}
	return nil
}

func (s *scanner) number() error {
	if s.peek() == '-' {
		s.next++
	}
	if s.peek() == '0' {
		s.next++
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.peek() == '.' {
		s.next++
		if err := s.digits(); err != nil {
			return err
		}
	}
	if c := s.peek(); c != 'e' && c != 'E' {
		return nil
	}
	s.next++
	if c := s.peek(); c == '+' || c == '-' {
		s.next++
	}
	return s.digits()
}

func (s *scanner) digits() error {
	if !isDigit(s.peek()) {
		return s.unexpected("a digit")
	}
	for isDigit(s.peek()) {
		s.next++
	}
	return nil
}

func (s *scanner) space() {
	for s.next < len(s.data) {
		switch s.data[s.next] {
		case ' ', '\t', '\r', '\n':
			s.next++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0, which begins nothing, at the end.
func (s *scanner) peek() byte {
	if s.next == len(s.data) {
		return 0
	}
	return s.data[s.next]
}

func (s *scanner) unexpected(wanted string) error {
	if s.next == len(s.data) {
		return s.fail("unexpected end of JSON")
	}
	found, _ := utf8.DecodeRune(s.data[s.next:])
	return s.fail(fmt.Sprintf("unexpected %q where %s should be", found, wanted))
}

func (s *scanner) fail(message string) error { return &syntaxError{s.next, message} }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
