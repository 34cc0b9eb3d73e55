package eventing

// Partitions is the fixed number of partitions that ordering keys hash to. It is
// a constant because the number is part of every stored row: changing it needs
// an empty outbox.
const Partitions = 32

// PartitionOf returns the partition of an event: the hash (FNV-1a, 32 bits) of
// its ordering key, or of its ID where it has no key.
func PartitionOf(orderingKey, eventID string) int {
	s := orderingKey
	if s == "" {
		s = eventID
	}
	h := uint32(2166136261)
	for i := range len(s) {
		h ^= uint32(s[i])
		h *= 16777619
	}
	return int(h % Partitions)
}
