"""The command line as `python -m robust_diffusion`."""

from robust_diffusion.run import main

if __name__ == "__main__":
    main()
