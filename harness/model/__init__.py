"""Pure values and protocols, of the standard library and msgspec's ranges: the words that every other part of linkflap speaks."""
