"""What a private training will achieve, from public facts and made-up data, before anything is spent."""
