package store

import "encoding/json"

// In is the condition that a text is in the list of a parameter, which [Store.List] makes. It is planned once for lists of any length.
func (s *Store) In(expr, parameter string) string {
	if s.Embedded {
		return expr + " IN (SELECT value FROM json_each(" + parameter + "))"
	}
	return expr + " = ANY(CAST((SELECT CAST(" + parameter + " AS text[])) AS text[]))"
}

// List is what is passed for the parameter of [Store.In].
func (s *Store) List(texts []string) any {
	if !s.Embedded {
		return texts
	}
	list, _ := json.Marshal(append([]string{}, texts...)) // texts always encode
	return string(list)
}
