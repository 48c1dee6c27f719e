package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

// A partner who allows 54 requests an hour is called evenly, and what cannot be sent in time is known at once.
func Example() {
	partner := base(func(r *http.Request) (*http.Response, error) { // http.DefaultTransport in earnest
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("hello")), Request: r}, nil
	})
	store := spillway.Must(memory.New(memory.Config{})) // redislimit for a fleet
	defer store.Close()
	calls := http.Client{Transport: spillway.Must(client.New(client.Config{
		Base:    partner,
		Limiter: store,
		Limit:   limiter.PerHour(54),
		MaxWait: 10 * time.Second,
	}))}
	for range 2 {
		res, err := calls.Get("https://api.example.com/orders")
		var limited *client.LimitedError
		switch {
		case errors.As(err, &limited):
			fmt.Println("not sent:", limited.Reason, limited.RetryAfter.Round(time.Second))
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println("sent:", res.StatusCode)
			_ = res.Body.Close()
		}
	}
	// Output:
	// sent: 200
	// not sent: quota 1m14s
}

// Each account at each of several partners has a limit of its own, and its token is in no store.
func ExampleConfig_accounts() {
	secret := []byte("of sixteen bytes or more")
	_, err := client.New(client.Config{
		Base: http.DefaultTransport,
		Key:  keyfunc.Join(client.Host(), keyfunc.HMAC(secret, keyfunc.Header("Authorization"))),
	})
	fmt.Println(err)
	// Output: <nil>
}

// Some partners limit each route by itself.
func ExampleRoutes() {
	store := spillway.Must(memory.New(memory.Config{}))
	defer store.Close()
	_, err := client.New(client.Config{
		Base:    http.DefaultTransport,
		Limiter: store,
		Key:     client.Routes("POST /messages", "GET /messages/{id}"),
		Limit:   limiter.PerSecond(5),
		Plan: func(r *keyfunc.Request) (limiter.Limit, bool) {
			return limiter.PerSecond(50), r.Method == http.MethodGet
		},
	})
	fmt.Println(err)
	// Output: <nil>
}
