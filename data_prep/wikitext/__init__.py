"""Plain text from the markup of MediaWiki."""
