package config_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/leased"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/limiter/redislimit"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

// places are where each setting of Go stands in a document. What cannot be written has its reason after a "!".
var places = []struct {
	of   reflect.Type
	path string
	at   map[string]string
}{
	{reflect.TypeFor[middleware.Config](), "", map[string]string{
		"Limiter": "store", "Policies": "policies", "Exempt": "exempt", "Response": "response", "ClientIP": "client_ip", "MaxWaiting": "max_waiting",
		"CountPreflights": "count_preflights", "Observer": "!code: Deps has it", "Logger": "!code: Deps has it",
	}},
	{reflect.TypeFor[middleware.Policy](), "policies.", map[string]string{
		"Name": "name", "Stage": "stage", "Match": "match", "Exempt": "exempt", "Key": "key", "OnNoKey": "on_no_key", "StoreKey": "store_key", "Limit": "limit",
		"Plan": "plans overrides", "InFlight": "in_flight", "Unit": "unit", "Partition": "partition", "Limiter": "mode", "Cost": "cost", "MaxDelay": "max_delay",
		"Refund": "refund", "Degrade": "degrade", "OnStoreError": "on_store_error", "Shadow": "shadow", "Headers": "headers", "Messages": "messages",
		"Adjust": "schedule", "Adaptive": "adaptive",
	}},
	{reflect.TypeFor[middleware.Match](), "policies.match.", map[string]string{
		"Hosts": "hosts", "Routes": "routes", "Methods": "methods", "CIDRs": "cidrs", "If": "if",
	}},
	{reflect.TypeFor[response.Options](), "", map[string]string{
		"Headers": "headers", "ResetDelta": "response.reset_delta", "RetryAfterDate": "response.retry_after_date", "MaxRetryAfter": "response.max_retry_after",
		"Jitter": "response.jitter", "MaxUnitsPerSecond": "response.max_units_per_second", "NoExpose": "response.no_expose", "Messages": "response.messages",
		"DegradedField": "response.degraded_field",
		"Body":          "!code: Deps has it",
	}},
	{reflect.TypeFor[keyfunc.Trust](), "client_ip.", map[string]string{
		"Strategy": "strategy", "Count": "count", "Header": "header", "TrustedProxies": "trusted_proxies", "TrustUnix": "trust_unix", "IPv6Prefix": "ipv6_prefix",
		"IPv4Prefix": "ipv4_prefix", "NAT64Prefixes": "nat64_prefixes", "OnKeyError": "on_key_error", "AllowTrustAll": "allow_trust_all",
	}},
	{reflect.TypeFor[limiter.Limit](), "policies.", map[string]string{
		"Algorithm": "algorithm", "Rate": "limit", "Period": "limit", "Burst": "burst", "Cells": "cells", "Align": "align",
	}},
	{reflect.TypeFor[limiter.Align](), "policies.align.", map[string]string{"Unit": "unit", "Zone": "zone"}},
	{reflect.TypeFor[degrade.PagesConfig](), "policies.degrade.cache.", map[string]string{
		"MaxBytes": "max_bytes", "MaxPage": "max_page", "MaxStale": "max_stale", "MaxStaleIfError": "max_stale_if_error", "Statuses": "statuses",
		"Partition": "partition", "Credentials": "credentials", "IgnoreCookies": "ignore_cookies", "Query": "query", "Flushed": "flushed",
		"Store": "!code: Deps.Copies", "PartitionName": "!is what partition says", "Name": "!of the product, in Cache-Status", "Log": "!code: Deps has it",
	}},
	{reflect.TypeFor[degrade.ReadOnlyConfig](), "policies.degrade.read_only.", map[string]string{
		"ReadRoutes": "read_routes", "Reads": "reads", "Writes": "writes", "Latch": "latch",
	}},
	{reflect.TypeFor[degrade.StaticConfig](), "policies.degrade.static.", map[string]string{
		"Status": "status", "Header": "headers", "Contents": "contents", "CacheControl": "cache_control", "FS": "!code: Deps.Files",
	}},
	{reflect.TypeFor[degrade.Content](), "policies.degrade.static.contents.", map[string]string{"Type": "type", "Language": "language", "Body": "body", "File": "file"}},
	{reflect.TypeFor[degrade.QueueConfig](), "policies.degrade.queue.", map[string]string{
		"PerKey": "per_key", "Total": "total", "MaxWait": "max_wait", "ServiceTime": "service_time", "NewestFirst": "newest_first",
	}},
	{reflect.TypeFor[degrade.RedirectConfig](), "policies.degrade.redirect.", map[string]string{
		"URL": "to", "Status": "status", "Return": "return", "NoRetryAfter": "no_retry_after",
	}},
	{reflect.TypeFor[degrade.ShedConfig](), "policies.degrade.shed.", map[string]string{"Class": "class routes default", "By": "by", "Keep": "keep", "Rotate": "rotate"}},
	{reflect.TypeFor[adaptive.Config](), "policies.adaptive.", map[string]string{
		"Target": "target", "Law": "law", "Min": "min", "Max": "max", "Fixed": "fixed", "CPU": "cpu", "RTT": "rtt", "Errors": "errors", "QueueDelay": "queue_delay",
		"Runnable": "runnable", "Window": "window", "Interval": "interval", "MinSamples": "min_samples", "CPUQuota": "cpu_quota",
		"Name": "!of the policy", "CPUSource": "!code: Deps.Adaptive", "Observer": "!code: Deps has it", "Logger": "!code: Deps has it",
	}},
	{reflect.TypeFor[adaptive.Rule](), "policies.schedule.", map[string]string{"When": "when", "Zone": "zone", "Scale": "scale", "Limit": "limit"}},
	{reflect.TypeFor[adaptive.Calendar](), "policies.calendar.", map[string]string{"Holidays": "holidays", "Workdays": "workdays"}},
	{reflect.TypeFor[memory.Config](), "store.memory.", map[string]string{
		"MaxKeys": "max_keys", "MaxLogEntries": "max_log_entries", "Observer": "!code", "Name": "!says which of the stores it is",
	}},
	{reflect.TypeFor[redislimit.Config](), "store.", map[string]string{
		"Client": "redis", "Prefix": "prefix", "Timeout": "timeout", "CallerClock": "caller_clock", "DenyCache": "deny_cache", "NoSharing": "no_sharing",
		"Observer": "!code", "Name": "!says which of the stores it is",
	}},
	{reflect.TypeFor[leased.Config](), "store.", map[string]string{
		"Client": "redis", "Prefix": "prefix", "Timeout": "timeout", "Sync": "!is of a policy: policies.sync", "MaxKeys": "!of a process", "Observer": "!code", "Logger": "!code",
		"Name": "!says which of the stores it is",
	}},
	{reflect.TypeFor[fallback.Config](), "store.fallback.", map[string]string{
		"Secondary": "memory", "Replicas": "replicas", "Census": "census", "Failures": "failures", "SlowCall": "slow_call", "Cooldown": "cooldown",
		"Primary": "!is the store", "Observer": "!code", "Logger": "!code", "Name": "!says which of the stores it is",
	}},
}

// only are fields of a document that no setting of Go is behind.
var only = map[string]string{
	"version": "of the form", "max_cache_bytes": "the sum of MaxBytes", "policies.calendar": "the Calendar of Adjust", "policies.sync": "Sync of leased.Config", "key_secret": "an argument of keyfunc.HMAC", "key_secret_file": "likewise",
	"store.memory": "which store", "store.fallback": "which store", "store.redis.url": "of the client", "store.redis.url_file": "of the client",
	"policies.degrade.cache": "a handler", "policies.degrade.read_only": "a handler", "policies.degrade.static": "a handler", "policies.degrade.queue": "a handler",
	"policies.degrade.redirect": "a handler", "policies.degrade.shed": "a handler", "policies.degrade.flag": "a handler", "policies.degrade.func": "a handler",
	"policies.degrade.cache.limit": "a Within", "policies.degrade.read_only.limit": "a Within", "policies.degrade.static.limit": "a Within",
	"policies.degrade.redirect.limit": "a Within", "policies.degrade.flag.limit": "a Within", "policies.degrade.func.limit": "a Within",
	"policies.degrade.func.name": "in Deps.Degrade",
	"policies.plans.from":        "inside of Plan", "policies.plans.limits": "inside of Plan", "policies.plans.unknown": "inside of Plan", "policies.plans.trusted": "silences a warning",
}

// Every setting of Go has its place in a document, and every field of a document its setting: whoever adds one says where.
func TestMapping(t *testing.T) {
	covered := make(map[string]bool)
	for path := range only {
		covered[path] = true
	}
	for _, p := range places {
		for k := range p.of.NumField() {
			f := p.of.Field(k)
			if !f.IsExported() {
				continue
			}
			at, ok := p.at[f.Name]
			require.True(t, ok, "%v.%s has no place in a document", p.of, f.Name)
			if strings.HasPrefix(at, "!") {
				continue
			}
			for name := range strings.FieldsSeq(at) {
				covered[p.path+name] = true
			}
		}
		for name := range p.at {
			_, ok := p.of.FieldByName(name)
			require.True(t, ok, "%v has no field %s", p.of, name)
		}
	}
	written := make(map[string]bool)
	fields(reflect.TypeFor[config.Document](), "", func(path string, _ reflect.StructField) { written[path] = true })
	for path := range written {
		same := strings.NewReplacer("policies.exempt.", "policies.match.", "fallback.memory.", "memory.").Replace(path)
		if rest, ok := strings.CutPrefix(same, "exempt."); ok {
			same = "policies.match." + rest
		}
		require.True(t, covered[same], "%s is behind no setting", path)
	}
	for path := range covered {
		require.True(t, written[path], "%s is no field of a document", path)
	}
}

// fields calls f for every field of a document, by its path without indices.
func fields(t reflect.Type, path string, f func(path string, field reflect.StructField)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for k := range t.NumField() {
		field := t.Field(k)
		if name := field.Tag.Get("yaml"); name != "" {
			f(path+name, field)
			fields(field.Type, path+name+".", f)
		}
	}
}
