-- KEYS: stream. Answers with the id that it ends with.
return stream_end(KEYS[1])
