"""Pure values and protocols, standard library only: the words that every other part of linkflap speaks."""
