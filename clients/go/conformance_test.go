package boltq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/boltq/boltq/clients/go"
)

// The runner for tests/conformance: it knows the steps of its README and no scenario. What a step does is in
// conformance_steps_test.go and conformance_many_test.go; here is everything around.

const scenariosFolder = "../../tests/conformance/scenarios"

type scenario struct {
	Name  string
	On    []string
	Steps []map[string]any
}

func TestScenarios(t *testing.T) {
	needServers(t)
	files, err := filepath.Glob(filepath.Join(scenariosFolder, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in %s: %v", scenariosFolder, err)
	}
	for _, file := range files {
		text := must[[]byte](t)(os.ReadFile(file))
		var s scenario
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, on := range s.On {
			t.Run(s.Name+"/"+on, func(t *testing.T) {
				bed := single
				if on == "cluster" {
					bed = three
				}
				s.run(t, bed(t))
			})
		}
	}
}

// run is one run of a scenario.
type run struct {
	t          *testing.T
	bed        *testbed
	client     *boltq.Client
	variables  map[string]any
	names      map[string]string
	streams    map[string]*openStream
	background map[string]*background
	workers    map[string]*toldWorker
}

// background is a step that goes on while others are made.
type background struct {
	progress progress
	stop     context.CancelFunc
	done     chan struct{}
	answer   any
	err      error
}

func (s scenario) run(t *testing.T, bed *testbed) {
	r := &run{
		t: t, bed: bed, client: bed.connect(t),
		variables: make(map[string]any), names: make(map[string]string),
		streams: make(map[string]*openStream), background: make(map[string]*background),
		workers: make(map[string]*toldWorker),
	}
	defer func() {
		for _, stream := range r.streams {
			stream.close()
		}
		for _, one := range r.background {
			one.stop()
			<-one.done
		}
		for _, worker := range r.workers {
			worker.finish()
			worker.stop()
			<-worker.ended
		}
	}()
	for number, raw := range s.Steps {
		if err := r.step(raw); err != nil {
			text, _ := json.Marshal(raw)
			t.Fatalf("step %d, %s: %v", number, text, err)
		}
	}
}

// step does one step, again and again if it says so, and compares.
func (r *run) step(raw map[string]any) error {
	replaced, err := r.replace(raw)
	if err != nil {
		return err
	}
	step := replaced.(map[string]any)
	within := durationOr(step["within"], 0)
	for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		answer, err := r.try(step)
		if err = r.compare(step, answer, err); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// hanging is what a step has more than its timeout before it is said to hang.
const hanging = 30 * time.Second

func (r *run) try(step map[string]any) (any, error) {
	do, _ := step["do"].(string)
	action, ok := actions[do]
	if !ok {
		return nil, fmt.Errorf("the runner does not know %q", do)
	}
	timeout := durationOr(step["timeout"], 30*time.Second)
	ctx, cancel := context.WithTimeout(r.t.Context(), timeout)
	one := &background{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(one.done)
		defer cancel()
		one.answer, one.err = action(ctx, r, arguments(step), &one.progress)
	}()
	if name, ok := step["background"].(string); ok {
		r.background[name] = one
		return nil, nil
	}
	return one.outcome(timeout)
}

// outcome waits for the answer of a step, as JSON has it.
func (b *background) outcome(timeout time.Duration) (any, error) {
	select {
	case <-b.done:
	case <-time.After(timeout + hanging):
		return nil, errors.New("the step hangs")
	}
	if b.err != nil {
		return nil, b.err
	}
	text, err := json.Marshal(b.answer)
	if err != nil {
		return nil, err
	}
	var answer any
	return answer, errors.Join(json.Unmarshal(text, &answer), nil)
}

// compare checks an outcome against what is expected, and saves what is to be saved.
func (r *run) compare(step map[string]any, answer any, err error) error {
	if expected, ok := step["error"]; ok {
		if err == nil {
			return fmt.Errorf("it succeeded: %v", answer)
		}
		var failure *boltq.Error
		if !errors.As(err, &failure) {
			return fmt.Errorf("no failure of the server: %w", err)
		}
		metadata := make(map[string]any)
		for name, value := range failure.Metadata {
			metadata[name] = value
		}
		return matches(expected, map[string]any{
			"reason": failure.Reason, "code": codeName(failure.Code.String()), "retriable": failure.Retriable(), "metadata": metadata,
		}, "error")
	}
	if err != nil {
		return err
	}
	if expected, ok := step["expect"]; ok {
		if err := matches(expected, answer, "answer"); err != nil {
			return err
		}
	}
	save, _ := step["save"].(map[string]any)
	for path, variable := range save {
		value, err := at(answer, path)
		if err != nil {
			return err
		}
		r.variables[variable.(string)] = value
	}
	return nil
}

// codeName turns "NotFound" into "NOT_FOUND".
func codeName(code string) string {
	var name strings.Builder
	for at, letter := range code {
		if at > 0 && unicode.IsUpper(letter) {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToUpper(letter))
	}
	return name.String()
}

// at finds a value by its path.
func at(answer any, path string) (any, error) {
	for part := range strings.SplitSeq(path, ".") {
		switch inner := answer.(type) {
		case map[string]any:
			answer = inner[part]
		case []any:
			index, err := strconv.Atoi(part)
			if err != nil || index >= len(inner) {
				return nil, fmt.Errorf("there is no %q in %v", path, inner)
			}
			answer = inner[index]
		default:
			return nil, fmt.Errorf("there is no %q", path)
		}
	}
	return answer, nil
}

var (
	uniqueName   = regexp.MustCompile(`\$unique\(([^)]*)\)`)
	variableName = regexp.MustCompile(`\$\{(\w+)\}`)
	onlyVariable = regexp.MustCompile(`^\$(\w+)$`)
)

// replace puts variables and unique names into a value. What is expected of any value has a "$" of its own.
func (r *run) replace(value any) (any, error) {
	switch value := value.(type) {
	case string:
		return r.replaceText(value)
	case []any:
		replaced := make([]any, len(value))
		for index, one := range value {
			var err error
			if replaced[index], err = r.replace(one); err != nil {
				return nil, err
			}
		}
		return replaced, nil
	case map[string]any:
		replaced := make(map[string]any, len(value))
		for name, one := range value {
			var err error
			if replaced[name], err = r.replace(one); err != nil {
				return nil, err
			}
		}
		return replaced, nil
	default:
		return value, nil
	}
}

func (r *run) replaceText(text string) (any, error) {
	if name := onlyVariable.FindStringSubmatch(text); name != nil && text != "$any" {
		value, ok := r.variables[name[1]]
		if !ok {
			return nil, fmt.Errorf("the variable %s is not set", text)
		}
		return value, nil
	}
	text = uniqueName.ReplaceAllStringFunc(text, func(found string) string {
		prefix := uniqueName.FindStringSubmatch(found)[1]
		if r.names[prefix] == "" {
			r.names[prefix] = fmt.Sprintf("%s-%012x", prefix, rand.Uint64()>>16)
		}
		return r.names[prefix]
	})
	return variableName.ReplaceAllStringFunc(text, func(found string) string {
		return fmt.Sprint(r.variables[variableName.FindStringSubmatch(found)[1]])
	}), nil
}

// matches says where a value is not what is expected of it.
func matches(expected, actual any, where string) error {
	switch expected := expected.(type) {
	case string:
		if expected == "$any" {
			if actual == nil || actual == "" {
				return fmt.Errorf("%s is not there", where)
			}
			return nil
		}
	case map[string]any:
		if special := specialMatch(expected, actual, where); special != nil {
			return special.err
		}
		inner, ok := actual.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is %v and not an object", where, actual)
		}
		for _, name := range slices.Sorted(maps.Keys(expected)) {
			value, ok := inner[name]
			if !ok {
				return fmt.Errorf("%s.%s is missing", where, name)
			}
			if err := matches(expected[name], value, where+"."+name); err != nil {
				return err
			}
		}
		return nil
	case []any:
		inner, ok := actual.([]any)
		if !ok || len(inner) != len(expected) {
			return fmt.Errorf("%s is %v and not %v", where, actual, expected)
		}
		for index := range expected {
			if err := matches(expected[index], inner[index], fmt.Sprintf("%s.%d", where, index)); err != nil {
				return err
			}
		}
		return nil
	}
	if !reflect.DeepEqual(expected, actual) {
		return fmt.Errorf("%s is %v and not %v", where, actual, expected)
	}
	return nil
}

type matched struct{ err error }

// specialMatch is nil if an object is an ordinary one.
func specialMatch(expected map[string]any, actual any, where string) *matched {
	if len(expected) != 1 {
		return nil
	}
	list, _ := actual.([]any)
	for name, wanted := range expected {
		switch name {
		case "$min":
			if number, ok := actual.(float64); !ok || number < wanted.(float64) {
				return &matched{fmt.Errorf("%s is %v and less than %v", where, actual, wanted)}
			}
		case "$length":
			if float64(len(list)) != wanted {
				return &matched{fmt.Errorf("%s has %d elements and not %v", where, len(list), wanted)}
			}
		case "$unordered":
			if len(list) != len(wanted.([]any)) {
				return &matched{fmt.Errorf("%s has %d elements and not %d", where, len(list), len(wanted.([]any)))}
			}
			return &matched{eachOnce(wanted.([]any), list, where)}
		case "$contains":
			for _, one := range wanted.([]any) {
				if !slices.ContainsFunc(list, func(actual any) bool { return matches(one, actual, where) == nil }) {
					return &matched{fmt.Errorf("%s is %v and has no %v", where, list, one)}
				}
			}
		default:
			return nil
		}
	}
	return &matched{}
}

// eachOnce says which of the wanted elements has none of its own.
func eachOnce(wanted, list []any, where string) error {
	left := slices.Clone(list)
	for _, one := range wanted {
		index := slices.IndexFunc(left, func(actual any) bool { return matches(one, actual, where) == nil })
		if index < 0 {
			return fmt.Errorf("%s is %v and has no %v", where, list, one)
		}
		left = slices.Delete(left, index, index+1)
	}
	return nil
}

// durationOr reads a duration of a scenario.
func durationOr(value any, otherwise time.Duration) time.Duration {
	text, ok := value.(string)
	if !ok {
		return otherwise
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return duration
}
