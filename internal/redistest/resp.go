package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// message is one request or reply, as it was on the wire.
type message struct {
	raw  []byte
	name string // of a request: its command, in capitals
}

// isPush says that it answers no request.
func (m message) isPush() bool { return m.raw[0] == '>' }

// readMessage reads one request or reply of RESP2 or RESP3.
func readMessage(r *bufio.Reader) (message, error) {
	var m message
	err := m.read(r, true)
	return m, err
}

func (m *message) read(r *bufio.Reader, first bool) error {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	m.raw = append(m.raw, line...)
	text := bytes.TrimRight(line, "\r\n")
	if len(text) == 0 {
		return fmt.Errorf("an empty line is no RESP")
	}
	switch text[0] {
	case '$', '!', '=': // a string with its length
		n, err := strconv.Atoi(string(text[1:]))
		if err != nil || n < 0 { // -1: none
			return err
		}
		from := len(m.raw)
		m.raw = append(m.raw, make([]byte, n+2)...)
		if _, err = io.ReadFull(r, m.raw[from:]); err != nil {
			return err
		}
		if m.name == "" {
			m.name = strings.ToUpper(string(m.raw[from : from+n]))
		}
	case '*', '~', '>', '%', '|': // as many messages
		n, err := strconv.Atoi(string(text[1:]))
		if err != nil {
			return err
		}
		if text[0] == '%' || text[0] == '|' {
			n *= 2
		}
		if text[0] == '|' {
			n++ // attributes come before what they are about
		}
		for range n {
			if err := m.read(r, false); err != nil {
				return err
			}
		}
	default: // a line, or a command as people type it
		if first {
			m.name, _, _ = strings.Cut(strings.ToUpper(string(text)), " ")
		}
	}
	return nil
}
