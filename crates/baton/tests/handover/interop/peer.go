// Go's TLS as clients and servers, one of each for every line of the standard input:
//
//	serve ID VERSION SUITE           listens; prints "port ID PORT"
//	connect ID PORT VERSION SUITE    a client of an echo: prints "half ID" in the middle, "done ID" at the end
//	go                               the halves go on
//
// Argument: a folder with ca.pem, ec.pem and rsa.pem. A server prints "half ID" too, and "ended ID" for each connection whose end was said,
// "ended ID, resumed" if its session was.
// Peer.java is the same in Java.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	bulk = 2 << 20
	// What comes in one piece is one record.
	record = 16 << 10
	// Bytes in front of the message whose reply is left half sent.
	before = 1 + record + bulk
)

var (
	versions = map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}
	suites   = map[string]uint16{}
	goOn     = make(chan struct{})
	output   sync.Mutex
)

func say(format string, values ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", values...)
}

// halving sends only half of the next record until it may go on.
type halving struct {
	net.Conn
	id    string
	armed bool
}

func (c *halving) Write(bytes []byte) (int, error) {
	if !c.armed {
		return c.Conn.Write(bytes)
	}
	c.armed = false
	middle := len(bytes) / 2
	if count, err := c.Conn.Write(bytes[:middle]); err != nil {
		return count, err
	}
	say("half %s", c.id)
	<-goOn
	count, err := c.Conn.Write(bytes[middle:])
	return middle + count, err
}

func settings(version, suite string) *tls.Config {
	return &tls.Config{
		MinVersion: versions[version], MaxVersion: versions[version],
		// Those of TLS 1.3 cannot be chosen: the other end does.
		CipherSuites:                []uint16{suites[suite]},
		DynamicRecordSizingDisabled: true,
	}
}

func agreed(connection *tls.Conn, version, suite string) error {
	state := connection.ConnectionState()
	if state.Version != versions[version] || state.CipherSuite != suites[suite] {
		return fmt.Errorf("agreed on %x %x", state.Version, state.CipherSuite)
	}
	return nil
}

func serve(folder, id, version, suite string) error {
	config := settings(version, suite)
	for _, name := range []string{"ec.pem", "rsa.pem"} {
		path := filepath.Join(folder, name)
		pair, err := tls.LoadX509KeyPair(path, path)
		if err != nil {
			return err
		}
		config.Certificates = append(config.Certificates, pair)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	say("port %s %d", id, listener.Addr().(*net.TCPAddr).Port)
	go func() {
		for {
			accepted, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				wire := &halving{Conn: accepted, id: id}
				connection := tls.Server(wire, config)
				if err := echo(wire, connection, version, suite); err != nil {
					say("failed %s %v", id, err)
				} else if connection.ConnectionState().DidResume {
					say("ended %s, resumed", id)
				} else {
					say("ended %s", id)
				}
			}()
		}
	}()
	return nil
}

func echo(wire *halving, connection *tls.Conn, version, suite string) error {
	defer wire.Close()
	if err := connection.Handshake(); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	if err := agreed(connection, version, suite); err != nil {
		return err
	}
	room := make([]byte, record)
	received := 0
	for {
		count, err := connection.Read(room)
		if err == io.EOF {
			// The other end has said so; without, the error is another one.
			return connection.Close()
		}
		if err != nil {
			return fmt.Errorf("behind %d: %w", received, err)
		}
		wire.armed = received == before
		received += count
		if _, err := connection.Write(room[:count]); err != nil {
			return err
		}
	}
}

// conversation numbers what is sent, and compares what comes back.
type conversation struct {
	connection *tls.Conn
	sent, got  int
}

func numbered(from, count int) []byte {
	bytes := make([]byte, count)
	for at := range bytes {
		place := from + at
		bytes[at] = byte(place ^ place>>8 ^ place>>16)
	}
	return bytes
}

func (c *conversation) send(count int) error {
	_, err := c.connection.Write(numbered(c.sent, count))
	c.sent += count
	return err
}

func (c *conversation) expect(count int) error {
	room := make([]byte, count)
	if _, err := io.ReadFull(c.connection, room); err != nil {
		return fmt.Errorf("behind %d: %w", c.got, err)
	}
	if !bytes.Equal(room, numbered(c.got, count)) {
		return fmt.Errorf("other bytes behind %d", c.got)
	}
	c.got += count
	return nil
}

func (c *conversation) exchange(count int) error {
	sent := make(chan error, 1)
	go func() { sent <- c.send(count) }()
	if err := c.expect(count); err != nil {
		return err
	}
	return <-sent
}

func (c *conversation) end() error {
	if err := c.connection.CloseWrite(); err != nil {
		return err
	}
	if count, err := c.connection.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("no end, but %d bytes, %v", count, err)
	}
	return nil
}

func connect(folder, id, port, version, suite string) error {
	authority, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
	if err != nil {
		return err
	}
	config := settings(version, suite)
	config.ServerName = "a.example"
	config.RootCAs = x509.NewCertPool()
	config.RootCAs.AppendCertsFromPEM(authority)
	config.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	open := func() (*halving, *conversation, error) {
		opened, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return nil, nil, err
		}
		opened.SetDeadline(time.Now().Add(time.Minute))
		wire := &halving{Conn: opened, id: id}
		connection := tls.Client(wire, config)
		if err := connection.Handshake(); err != nil {
			return nil, nil, fmt.Errorf("handshake: %w", err)
		}
		return wire, &conversation{connection: connection}, agreed(connection, version, suite)
	}
	wire, c, err := open()
	if err != nil {
		return err
	}
	defer wire.Close()
	for _, count := range []int{1, record, bulk} {
		if err := c.exchange(count); err != nil {
			return err
		}
	}
	if err := c.send(777); err != nil {
		return err
	}
	wire.armed = true
	for _, step := range []error{c.send(778), c.expect(777), c.expect(778), c.exchange(bulk), c.end()} {
		if step != nil {
			return step
		}
	}
	// Both sides of the last one are resumed.
	for range []int{1, 2} {
		wire, c, err := open()
		if err != nil {
			return err
		}
		for _, step := range []error{c.exchange(1), c.exchange(record), c.end(), wire.Close()} {
			if step != nil {
				return step
			}
		}
	}
	return nil
}

func main() {
	for _, suite := range tls.CipherSuites() {
		suites[suite.Name] = suite.ID
	}
	folder := os.Args[1]
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var what, id, a, b, c string
		fmt.Sscan(lines.Text(), &what, &id, &a, &b, &c)
		switch what {
		case "serve":
			if err := serve(folder, id, a, b); err != nil {
				say("failed %s %v", id, err)
			}
		case "connect":
			go func() {
				if err := connect(folder, id, a, b, c); err != nil {
					say("failed %s %v", id, err)
				} else {
					say("done %s", id)
				}
			}()
		case "go":
			close(goOn)
		}
	}
}
