// Package adaptive moves limits: by what a service can bear, and by the calendar.
package adaptive
