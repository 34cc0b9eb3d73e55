package redisbroker

import (
	"maps"
	"runtime"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
)

// FuzzDecode compares the decoder with watermill-redisstream's.
func FuzzDecode(f *testing.F) {
	for _, entries := range []int{0, 1, 15, 16, 300} {
		for _, size := range []int{0, 31, 32, 255, 256, 65536} {
			if entries*size > 1<<20 {
				continue
			}
			metadata := message.Metadata{}
			for i := range entries {
				metadata[strings.Repeat("k", i)] = strings.Repeat("v", size)
			}
			b, err := appendMetadata(nil, metadata)
			if err != nil {
				f.Fatal(err)
			}
			f.Add("uuid", true, string(b), "payload")
		}
	}
	for _, metadata := range []string{
		"", "\xc0", "\xc0rest", "\x80rest", "\x00", "\x81", "\x81\xa1k\xa1v", "\x81\xc0\xc0", "\x81\xa1k\xc0", "\x82\xa1k\xa1v\xa1k\xa1w",
		"\x81\xc4\x01k\xc4\x01v", "\x81\xc5\x00\x01k\xc6\x00\x00\x00\x01v", "\x81\xda\x00\x01k\xdb\x00\x00\x00\x01v", "\x81\xdb\xff\xff\xff\xff",
		"\xde\x00\x01\xa1k\xa1v", "\xdf\x00\x00\x00\x01\xa1k\xa1v", "\xde\xff\xff", "\xdf\xff\xff\xff\xff", "\xdf\x7f\xff\xff\xff\xa0\xa0",
		"\x81\xa1k\x01", "\x81\x01\xa1v", "\x81\xa1k\xc3", "\x81\xa1k\x91\xa1v", "\xa1k", "\x91\xa1k", "\xd4\x01\x81\xa1k\xa1v", "\xc7\x01\x01\x81",
	} {
		f.Add("", true, metadata, "")
		f.Add("uuid", false, metadata, "payload")
	}
	f.Fuzz(func(t *testing.T, uuid string, named bool, metadata, payload string) {
		values := map[string]any{metadataField: metadata, payloadField: payload}
		if named {
			values[uuidField] = uuid
		}
		got, err := decode(values)
		want, stockErr := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(values)
		switch {
		case (err == nil) == (stockErr == nil):
		case err != nil && isExtension(metadata): // the one that only stock accepts
			return
		default:
			t.Fatalf("our error is %v, stock's %v", err, stockErr)
		}
		if err != nil {
			return
		}
		if got.UUID != want.UUID || string(got.Payload) != string(want.Payload) || !maps.Equal(got.Metadata, want.Metadata) {
			t.Errorf("we read %q %v %q, stock %q %v %q", got.UUID, got.Metadata, got.Payload, want.UUID, want.Metadata, want.Payload)
		}
		if got.Metadata == nil { // stock's may be
			t.Error("nobody can set metadata")
		}
	})
}

func isExtension(metadata string) bool {
	return metadata[0] >= 0xc7 && metadata[0] <= 0xc9 || metadata[0] >= 0xd4 && metadata[0] <= 0xd8
}

// What an entry claims to have costs no memory.
func TestDecodeAllocatesWhatThereIs(t *testing.T) {
	for _, metadata := range []string{"\xdf\xff\xff\xff\xff\xa0\xa0", "\xde\xff\xff", "\x81\xdb\x7f\xff\xff\xff", "\x81\xa1k\xc6\xff\xff\xff\xff"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := decode(map[string]any{uuidField: "x", metadataField: metadata}); err == nil {
			t.Errorf("%q is metadata", metadata)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%q took %d bytes", metadata, n)
		}
	}
}
